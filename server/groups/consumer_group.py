"""A group of the consumer protocol (KIP-848), as a state machine: heartbeat and time in, outcome out.

    a heartbeat    1. who is it?         a member, a new one, a static one that has come back; or fenced
                   2. what has changed?  subscriptions, topics          -> the group's epoch grows
                   3. who shall read?    epoch > that of the target     -> an assignor makes another
                   4. how far is it?     one step towards its target    -> its epoch, its assignment

    Empty        nobody is there
    Assigning    the target assignment is older than the group's epoch
    Reconciling  somebody has not reached the target yet
    Stable       all have

The broker assigns, and each member comes to its target on its own: no heartbeat waits for another
member. Nobody can hold the others up for longer than the timeouts say: a member that falls silent
(`group.consumer.session.timeout.ms`), or does not give up what it must (its rebalance timeout), is
fenced: it is forgotten, and what it had is free.

Pure: no clock, no I/O, nothing random. Nothing is raised for what a peer sent. The state is what the
records say (`consumer_state.py`). There is no state Dead: a group that is deleted is forgotten.

Source: Apache Kafka, GroupMetadataManager.java (consumerGroupHeartbeat), ConsumerGroup.java.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from cleaner.text import count_text
from protocol.error_codes import ErrorCode
from protocol.group_records import GroupRecord
from server.groups.assignors import ASSIGNORS, Subscriber
from server.groups.consumer_member import AWAY, JOINING, ConsumerMember, MemberState
from server.groups.consumer_records import (
    current_record,
    epoch_record,
    member_is_gone,
    regex_is_gone,
    regex_record,
    subscription_record,
    target_epoch_record,
    target_record,
)
from server.groups.consumer_state import ConsumerState
from server.groups.epoch_checks import found_away, found_member
from server.groups.events import Beat, Leave
from server.groups.member import NO_MEMBER, Ticket
from server.groups.outcome import Beaten, Left, Outcome
from server.groups.reconciliation import Target, reconciled
from server.groups.step import Step, some_of
from server.groups.topic_catalog import TopicCatalog, existing, ids_of, metadata_hash
from server.groups.topic_patterns import InvalidPattern, matching

FIRST_EPOCH = 1
"""Of a group that nobody has subscribed to any topic in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTimes:
    """How often the members of a group are heard of, and how long they are waited for."""

    session_timeout_ms: int
    heartbeat_interval_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """What the broker's configuration says of groups of the consumer protocol."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    size_max: int
    assignors: tuple[str, ...]
    """The names of those that members may ask for; the first one is the default."""
    migration_policy: str = "bidirectional"
    """Which way a group with members may change its protocol."""
    own_times: Mapping[str, GroupTimes] = field(default_factory=dict)
    """Those of groups that have a configuration of their own, by group id; they may change."""

    def times_of(self, group_id: str) -> GroupTimes | ConsumerSettings:
        """What holds for one group now."""
        return self.own_times.get(group_id, self)


class ConsumerGroupState(enum.Enum):
    """The value is what clients are told."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class ConsumerGroup:
    """One group. Each method that takes an event is one step and returns what is owed for it."""

    protocol: ClassVar = "consumer"
    """What clients call this type of group."""

    __slots__ = (
        "_debts",
        "_records",
        "_revision",
        "_sessions",
        "_settings",
        "_step",
        "data",
        "group_id",
        "topics",
    )

    def __init__(
        self,
        group_id: str,
        settings: ConsumerSettings,
        topics: TopicCatalog,
        data: ConsumerState | None = None,
    ) -> None:
        # Constant after construction
        self.group_id = group_id
        self.topics = topics
        self._settings = settings
        # State; others read it
        self.data = ConsumerState() if data is None else data
        """What its records say."""
        # State that no record says
        self._revision: int | None = None
        """Of the topics, when they were last looked at."""
        self._sessions: dict[str, int] = {}
        """By member id, until when it must have been heard of."""
        self._debts: dict[str, int] = {}
        """By member id, until when it must have done what it owes: given up partitions, or, where it
        speaks the classic protocol, joined again or asked for its assignment."""
        # What the present step owes
        self._step = Step()
        self._records: list[GroupRecord] = []

    @property
    def state(self) -> ConsumerGroupState:
        # A scrape asks in a thread of its own.
        members = tuple(self.data.members.values())
        epoch = self.data.assignment_epoch
        if not members:
            return ConsumerGroupState.EMPTY
        if self.data.epoch > epoch:
            return ConsumerGroupState.ASSIGNING
        if not all(member.has_reached(epoch) for member in members):
            return ConsumerGroupState.RECONCILING
        return ConsumerGroupState.STABLE

    @property
    def members_count(self) -> int:
        return len(self.data.members)

    @property
    def assignor(self) -> str:
        """The one that most members ask for."""
        wishes = Counter(
            member.server_assignor
            for member in self.data.members.values()
            if member.server_assignor in self._settings.assignors
        )
        return wishes.most_common(1)[0][0] or "" if wishes else self._settings.assignors[0]

    # Heartbeats.

    def heartbeat(self, beat: Beat, ticket: Ticket, *, now_ms: int) -> Outcome:
        """Answer a ConsumerGroupHeartbeat; always at once."""
        if beat.member_epoch < JOINING:
            self._step.answer(ticket, self._let_go(beat))
        else:
            self._step.answer(ticket, self._beat(beat, now_ms))
        return self._outcome()

    def _beat(self, beat: Beat, now_ms: int) -> Beaten:
        before = found_member(
            self.data, beat, group_id=self.group_id, size_max=self._settings.size_max
        )
        if isinstance(before, Beaten):
            return before
        member = before.told(beat)
        try:
            matches = self._matches(member.regex)
        except InvalidPattern as error:
            text = (
                f"SubscribedTopicRegex `{member.regex}` is not a valid regular expression: {error}."
            )
            return Beaten(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION, message=text)
        self._take_over(before)
        self._subscribe(before, member, matches, now_ms)
        if self.data.epoch > self.data.assignment_epoch:
            self._assign(now_ms)
        after = self._reconcile(member, beat, (before.topics, before.regex), now_ms)
        self._lives(member.member_id, now_ms)
        tells = beat.member_epoch == JOINING or beat.is_full
        return Beaten(
            member_id=member.member_id,
            member_epoch=after.epoch,
            heartbeat_interval_ms=self._settings.times_of(self.group_id).heartbeat_interval_ms,
            assignment=after.assignment if tells or after.assignment != before.assignment else None,
        )

    def _take_over(self, member: ConsumerMember) -> None:
        """Let a static member that has come back have what it had before, under its new id."""
        old = self.data.static_member(member.instance_id or "")
        if old is None or old.member_id == member.member_id:
            return
        target = self.data.targets.get(old.member_id, {})
        self._forget(old.member_id)
        self._write(subscription_record(self.group_id, member))
        self._write(target_record(self.group_id, member.member_id, target))
        self._write(current_record(self.group_id, member))

    # Subscriptions and topics.

    def _matches(self, regex: str) -> frozenset[str]:
        """The topics that a member's expression matches. Raises InvalidPattern."""
        known = self.data.regexes.get(regex)
        if known is not None or not regex:
            return known or frozenset()
        return matching(regex, (topic.name for topic in self.topics.all()))

    def _subscribe(
        self, before: ConsumerMember, member: ConsumerMember, matches: frozenset[str], now_ms: int
    ) -> None:
        """Note what a member says; another epoch begins where the group reads other topics then."""
        if member != before or member.member_id not in self.data.members:
            self._write(subscription_record(self.group_id, member))
        if member.regex and member.regex not in self.data.regexes:
            self._write(regex_record(self.group_id, member.regex, matches, now_ms))
        if member.regex != before.regex:
            self._forget_unused_regexes()
        if self.data.epoch < FIRST_EPOCH:
            self._write(epoch_record(self.group_id, FIRST_EPOCH, 0))
        has_resubscribed = (member.topics, member.regex) != (before.topics, before.regex)
        if self._topics_have_changed(now_ms) or has_resubscribed:
            self._begin_epoch()

    def _topics_have_changed(self, now_ms: int) -> bool:
        """Whether the group's topics are not the same that its epoch began with."""
        if self._revision == self.topics.revision:
            return False
        self._revision = self.topics.revision
        return self._matches_have_changed(now_ms) or self._hash() != self.data.metadata_hash

    def _matches_have_changed(self, now_ms: int) -> bool:
        names = [topic.name for topic in self.topics.all()] if self.data.regexes else []
        found = {regex: matching(regex, names) for regex in self.data.regexes}
        changed = {regex: each for regex, each in found.items() if each != self.data.regexes[regex]}
        for regex, matches in changed.items():
            self._write(regex_record(self.group_id, regex, matches, now_ms))
        return bool(changed)

    def _forget_unused_regexes(self) -> None:
        if not self.data.regexes:
            return
        used = {member.regex for member in self.data.members.values()}
        for regex in self.data.regexes.keys() - used:
            self._write(regex_is_gone(self.group_id, regex))

    def _hash(self) -> int:
        return metadata_hash(self.data.topics, self.topics)

    def _begin_epoch(self) -> None:
        self._write(epoch_record(self.group_id, self.data.epoch + 1, self._hash()))

    # Assigning.

    def _assign(self, now_ms: int) -> None:
        """Make a target assignment for the group's epoch."""
        counts = {
            topic.id: len(topic.partitions) for topic in existing(self.data.topics, self.topics)
        }
        shares = ASSIGNORS[self.assignor](
            [self._subscriber(member) for member in self.data.members.values()], counts
        )
        for member_id, share in shares.items():
            if share != self.data.targets.get(member_id):
                self._write(target_record(self.group_id, member_id, share))
        self._write(target_epoch_record(self.group_id, self.data.epoch, now_ms))
        members = count_text(len(shares), "member")
        self._step.note(f"assigns for epoch {self.data.epoch}: {members}, {self.assignor}")

    def _subscriber(self, member: ConsumerMember) -> Subscriber:
        return Subscriber(
            member_id=member.member_id,
            instance_id=member.instance_id,
            topics=ids_of(self.data.subscribed(member), self.topics),
            has=self.data.targets.get(member.member_id, {}),
        )

    def _reconcile(
        self,
        member: ConsumerMember,
        beat: Beat,
        was_subscribed: tuple[frozenset[str], str],
        now_ms: int,
    ) -> ConsumerMember:
        """Bring a member nearer to its target."""
        has_resubscribed = (member.topics, member.regex) != was_subscribed
        if member.has_reached(self.data.assignment_epoch) and not has_resubscribed:
            return member
        target = Target(
            epoch=self.data.assignment_epoch,
            assignment=self.data.targets.get(member.member_id, {}),
            subscribed=ids_of(self.data.subscribed(member), self.topics),
            owner=self.data.owner,
        )
        after = reconciled(member, target, beat.owned, has_resubscribed=has_resubscribed)
        if after is not member and after != member:
            self._write(current_record(self.group_id, after))
            self._await_revocation(after, now_ms)
        return after

    def _await_revocation(self, member: ConsumerMember, now_ms: int) -> None:
        """Begin to count how long a member takes to give up what it must, or stop."""
        self._debts.pop(member.member_id, None)
        # One of the classic protocol joins again for that, and that is counted.
        if member.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None:
            self._owes(member, now_ms)

    def _owes(self, member: ConsumerMember, now_ms: int) -> None:
        """Give a member its rebalance timeout to do what is waited for."""
        due_ms = self._debts[member.member_id] = now_ms + member.rebalance_timeout_ms
        self._step.look_again(due_ms)

    # Leaving.

    def _let_go(self, beat: Beat) -> Beaten:
        """A member leaves; a static one may come back before its session is over."""
        member = found_away(self.data, beat, group_id=self.group_id)
        if isinstance(member, Beaten):
            return member
        if beat.member_epoch == AWAY:
            self._write(current_record(self.group_id, replace(member, epoch=AWAY, revoking={})))
            self._debts.pop(member.member_id, None)
        else:
            self._fence([member], f"{member.member_id} left")
        return Beaten(member_id=member.member_id, member_epoch=beat.member_epoch)

    def leave(self, leaving: Iterable[Leave], ticket: Ticket, *, now_ms: int) -> Outcome:
        """Let members of the classic protocol go, or static ones, as an operator asks; others leave
        with a heartbeat."""
        found = [self._leaving(each) for each in leaving]
        gone = list({each.member_id: each for each in found if each is not None}.values())
        if gone:
            self._fence(gone, f"{some_of(each.member_id for each in gone)} left")
        unknown = ErrorCode.UNKNOWN_MEMBER_ID
        codes = tuple(unknown if each is None else ErrorCode.NONE for each in found)
        self._step.answer(ticket, Left(error_codes=codes))
        return self._outcome()

    def may_leave(self, leave: Leave) -> bool:
        """Whether anybody is there who is named so, and may leave so."""
        return self._leaving(leave) is not None

    def _leaving(self, leave: Leave) -> ConsumerMember | None:
        if leave.member_id == NO_MEMBER:
            return self.data.static_member(leave.instance_id or "")
        member = self.data.members.get(leave.member_id)
        return member if member is not None and member.classic is not None else None

    def _fence(self, members: Iterable[ConsumerMember], reason: str) -> None:
        """Forget members; what they had is free, and the next heartbeat has it shared out."""
        for member in members:
            self._forget(member.member_id)
        self._forget_unused_regexes()
        self._begin_epoch()
        self._step.note(f"begins epoch {self.data.epoch}: {reason}")

    def _forget(self, member_id: str) -> None:
        for record in member_is_gone(self.group_id, member_id):
            self._write(record)
        self._sessions.pop(member_id, None)
        self._debts.pop(member_id, None)

    # Time.

    def expire(self, now_ms: int) -> Outcome:
        """Do what is due; to be called when the last outcome's deadline is reached, and once after
        a start, from when on everybody has a whole session."""
        self._step.forget_deadline()
        for member in self.data.members.values():
            if member.member_id not in self._sessions:
                self._sessions[member.member_id] = now_ms + self._session_ms(member)
                self._await_revocation(member, now_ms)
        self._fence_late(self._sessions, "fell silent", now_ms)
        self._fence_late(self._debts, "took too long to rebalance", now_ms)
        for due_ms in (*self._sessions.values(), *self._debts.values()):
            self._step.look_again(due_ms)
        return self._outcome()

    def _fence_late(self, deadlines: dict[str, int], what: str, now_ms: int) -> None:
        late = [member_id for member_id, due_ms in deadlines.items() if due_ms <= now_ms]
        if late:
            members = [self.data.members[member_id] for member_id in late]
            self._fence(members, f"{some_of(late)} {what}")

    def _lives(self, member_id: str, now_ms: int) -> None:
        session_ms = self._session_ms(self.data.members[member_id])
        due_ms = self._sessions[member_id] = now_ms + session_ms
        self._step.look_again(due_ms)

    def _session_ms(self, member: ConsumerMember) -> int:
        """A member of the classic protocol has said how long its session is."""
        if member.classic is not None:
            return member.classic.session_timeout_ms
        return self._settings.times_of(self.group_id).session_timeout_ms

    # What a step owes.

    def abandon(self, error_code: ErrorCode) -> Outcome:
        """Answer everybody who waits with an error: nobody ever waits."""
        return Outcome()

    def _write(self, record: GroupRecord) -> None:
        self.data.apply(record)
        self._records.append(record)

    def _outcome(self) -> Outcome:
        records, self._records = tuple(self._records), []
        return self._step.end(records)
