"""A group of the consumer protocol (KIP-848) as a state machine: heartbeat and time in, outcome out.

    a heartbeat    1. identify the member    known, new, or a returning static one; otherwise fence it
                   2. note what changed      subscriptions, topics          -> new group epoch
                   3. assign                 group epoch > target's epoch   -> new target assignment
                   4. reconcile              one step towards its target    -> member epoch, assignment

    Empty        there are no members
    Assigning    the target assignment is older than the group's epoch
    Reconciling  some member has not reached its target yet
    Stable       all members have reached their targets

The broker assigns, and each member reconciles on its own: no heartbeat waits for another member. A
member can delay the others for no longer than the timeouts allow: one that stops sending heartbeats
(`group.consumer.session.timeout.ms`), or does not revoke its partitions in time (its rebalance
timeout), is fenced: the group removes it and its partitions become free.

Pure: no clock, no I/O, no randomness. Invalid requests never raise. The state is exactly what the
records say (`state.py`); `subscribed_topics.py` compares its topics with those that exist. There is no
state Dead: a deleted group is forgotten.

Source: Apache Kafka, GroupMetadataManager.java (consumerGroupHeartbeat), ConsumerGroup.java.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import ClassVar, Self

from cleaner.rules.text import count_text
from protocol.internal_topics.group_records import GroupRecord
from protocol.wire.error_codes import ErrorCode
from server.coordination.groups.consumer.assignors import ASSIGNORS, Subscriber
from server.coordination.groups.consumer.identification import heartbeating_member, leaving_member
from server.coordination.groups.consumer.member import AWAY, JOINING, ConsumerMember, MemberState
from server.coordination.groups.consumer.reconciliation import Target, reconciled
from server.coordination.groups.consumer.records import (
    current_record,
    epoch_record,
    member_tombstones,
    regex_record,
    regex_tombstone,
    subscription_record,
    target_epoch_record,
    target_record,
)
from server.coordination.groups.consumer.settings import ConsumerSettings
from server.coordination.groups.consumer.state import ConsumerState
from server.coordination.groups.consumer.subscribed_topics import SubscribedTopics
from server.coordination.groups.consumer.topic_catalog import (
    CatalogSnapshot,
    TopicCatalog,
    existing,
    ids_of,
    may_have_more_partitions,
)
from server.coordination.groups.events import NO_MEMBER, Beat, Leave, Ticket
from server.coordination.groups.outcome import (
    HeartbeatAnswer,
    Left,
    Outcome,
    OutcomeBuilder,
    first_names,
)
from server.topics.name_patterns import InvalidPattern

PARTITIONS_AT_ONCE_MAX = 250
"""A step that assigns more runs in a thread: 25 microseconds each (`large_steps.py`)."""

FIRST_EPOCH = 1
"""The epoch of a group whose members have not subscribed to any topic yet."""


class ConsumerGroupState(enum.Enum):
    """The states of a consumer group; the values are the names that clients see."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class ConsumerGroup:
    """One group. Each method that takes an event performs one step and returns its outcome."""

    protocol: ClassVar = "consumer"
    """The name by which clients know this type of group."""

    __slots__ = (
        "_builder",
        "_rebalance_deadlines",
        "_records",
        "_session_deadlines",
        "_settings",
        "_subscribed",
        "changes",
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
        # State; others may read it
        self.data = ConsumerState() if data is None else data
        """The state that the group's records describe."""
        self.changes = 0
        """Grows with each change of `data`."""
        # State that is not in any record
        self._subscribed = SubscribedTopics(self.data, topics)
        self._session_deadlines: dict[str, int] = {}
        """Session deadline by member id."""
        self._rebalance_deadlines: dict[str, int] = {}
        """Deadline by member id for a pending rebalance step: to revoke partitions, or, for a member of
        the classic protocol, to join again or to ask for its assignment."""
        # Outcome of the current step
        self._builder = OutcomeBuilder()
        self._records: list[GroupRecord] = []

    @property
    def state(self) -> ConsumerGroupState:
        # A scrape reads this from its own thread.
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
        """The assignor that most members ask for."""
        asked_for = Counter(
            member.server_assignor
            for member in self.data.members.values()
            if member.server_assignor in self._settings.assignors
        )
        return asked_for.most_common(1)[0][0] or "" if asked_for else self._settings.assignors[0]

    # Steps that take long.

    def assigns_many(self, *further: Collection[str]) -> bool:
        """Returns whether an assignment of the group, with these further topics, takes long."""
        subscriptions: tuple[Collection[str], ...] = (*self.data.subscriptions, *further)
        return may_have_more_partitions(subscriptions, self.topics, PARTITIONS_AT_ONCE_MAX)

    def may_take_long(self, beat: Beat) -> bool:
        """Returns whether a heartbeat's step may take long; most heartbeats only renew a session."""
        member = self.data.members.get(beat.member_id)
        is_settled = (
            member is not None
            and beat.member_epoch == self.data.epoch
            and member.has_reached(self.data.epoch)
            and self.data.epoch == self.data.assignment_epoch
            and self._subscribed.is_current
            and not beat.says_topics
        )
        found = () if beat.matches is None else beat.matches.by_pattern.values()
        matches = max(found, key=len, default=())
        return not is_settled and self.assigns_many(beat.topic_names or (), matches)

    def copy(self) -> Self:
        """Returns a copy for a step in a thread; `replace` puts it in this group's place."""
        topics = CatalogSnapshot(self.topics)
        copy = type(self)(self.group_id, self._settings, topics, self.data.copy())
        copy.changes = self.changes
        copy._subscribed = self._subscribed.over(copy.data, topics)
        copy._session_deadlines = self._session_deadlines.copy()
        copy._rebalance_deadlines = self._rebalance_deadlines.copy()
        if self._builder.deadline_ms is not None:
            copy._builder.add_deadline(self._builder.deadline_ms)
        return copy

    def replace(self, old: ConsumerGroup) -> None:
        """Take the place of the group of which this is a copy; that has only renewed sessions since."""
        self.topics = old.topics
        self._subscribed = self._subscribed.over(self.data, old.topics)
        for member_id, due_ms in old._session_deadlines.items():
            if due_ms > self._session_deadlines.get(member_id, due_ms):
                self._session_deadlines[member_id] = due_ms

    # Heartbeats.

    def heartbeat(self, beat: Beat, ticket: Ticket, *, now_ms: int) -> Outcome:
        """Answer a ConsumerGroupHeartbeat. The answer never waits for other members."""
        if beat.member_epoch < JOINING:
            self._builder.answer(ticket, self._leave_by_heartbeat(beat))
        else:
            self._builder.answer(ticket, self._heartbeat(beat, now_ms))
        return self._outcome()

    def _heartbeat(self, beat: Beat, now_ms: int) -> HeartbeatAnswer:
        before = heartbeating_member(
            self.data, beat, group_id=self.group_id, size_max=self._settings.size_max
        )
        if isinstance(before, HeartbeatAnswer):
            return before
        member = before.updated_by(beat)
        try:
            matches = self._subscribed.matches(member.regex, beat)
        except InvalidPattern as error:
            text = (
                f"SubscribedTopicRegex `{member.regex}` is not a valid regular expression: {error}."
            )
            return HeartbeatAnswer(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION, message=text)
        self._take_over_static(before)
        self._subscribe(before, member, matches, beat, now_ms)
        if self.data.epoch > self.data.assignment_epoch:
            self._assign(now_ms)
        after = self._reconcile(member, beat, (before.topics, before.regex), now_ms)
        self._renew_session(member.member_id, now_ms)
        is_complete_answer = beat.member_epoch == JOINING or beat.is_full
        return HeartbeatAnswer(
            member_id=member.member_id,
            member_epoch=after.epoch,
            heartbeat_interval_ms=self._settings.times_of(self.group_id).heartbeat_interval_ms,
            assignment=after.assignment
            if is_complete_answer or not after.has_same_partitions(before)
            else None,
        )

    def _take_over_static(self, member: ConsumerMember) -> None:
        """Give a returning static member the partitions it had, under its new member id."""
        old = self.data.static_member(member.instance_id or "")
        if old is None or old.member_id == member.member_id:
            return
        target = self.data.targets.get(old.member_id, {})
        self._forget(old.member_id)
        self._write(subscription_record(self.group_id, member))
        self._write(target_record(self.group_id, member.member_id, target))
        self._write(current_record(self.group_id, member))

    # Subscriptions and topics.

    def patterns_to_match(self, beat: Beat) -> frozenset[str]:
        """Returns the expressions that a heartbeat would match against all topics."""
        return self._subscribed.patterns_to_match(beat)

    def _subscribe(
        self,
        before: ConsumerMember,
        member: ConsumerMember,
        matches: frozenset[str],
        beat: Beat,
        now_ms: int,
    ) -> None:
        """Store the member's subscription; start a new epoch if the group's topics change with it."""
        if member != before or member.member_id not in self.data.members:
            self._write(subscription_record(self.group_id, member))
        if member.regex and member.regex not in self.data.regexes:
            self._write(regex_record(self.group_id, member.regex, matches, now_ms))
        if member.regex != before.regex:
            self._forget_unused_regexes()
        if self.data.epoch < FIRST_EPOCH:
            self._write(epoch_record(self.group_id, FIRST_EPOCH, 0))
        has_resubscribed = (member.topics, member.regex) != (before.topics, before.regex)
        changes = self._subscribed.changes(beat)
        for regex, new_matches in changes.matches.items():
            self._write(regex_record(self.group_id, regex, new_matches, now_ms))
        if changes.has_changes or has_resubscribed:
            self._begin_epoch()

    def _forget_unused_regexes(self) -> None:
        if not self.data.regexes:
            return
        used = {member.regex for member in self.data.members.values()}
        for regex in self.data.regexes.keys() - used:
            self._write(regex_tombstone(self.group_id, regex))

    def _begin_epoch(self) -> None:
        self._write(epoch_record(self.group_id, self.data.epoch + 1, self._subscribed.hash()))

    # Assigning.

    def _assign(self, now_ms: int) -> None:
        """Compute the target assignment for the group's epoch."""
        topics = existing(self.data.subscriptions, self.topics)
        counts = {topic.id: len(topic.partitions) for topic in topics}
        shares = ASSIGNORS[self.assignor](
            [self._subscriber(member) for member in self.data.members.values()], counts
        )
        for member_id, share in shares.items():
            if share != self.data.targets.get(member_id):
                self._write(target_record(self.group_id, member_id, share))
        self._write(target_epoch_record(self.group_id, self.data.epoch, now_ms))
        members = count_text(len(shares), "member")
        self._builder.note(f"assigns for epoch {self.data.epoch}: {members}, {self.assignor}")

    def _subscriber(self, member: ConsumerMember) -> Subscriber:
        return Subscriber(
            member_id=member.member_id,
            instance_id=member.instance_id,
            topics=ids_of(self.data.subscriptions_of(member), self.topics),
            has=self.data.targets.get(member.member_id, {}),
        )

    def _reconcile(
        self,
        member: ConsumerMember,
        beat: Beat,
        was_subscribed: tuple[frozenset[str], str],
        now_ms: int,
    ) -> ConsumerMember:
        """Move a member one step towards its target."""
        has_resubscribed = (member.topics, member.regex) != was_subscribed
        if member.has_reached(self.data.assignment_epoch) and not has_resubscribed:
            return member
        target = Target(
            epoch=self.data.assignment_epoch,
            assignment=self.data.targets.get(member.member_id, {}),
            subscribed=ids_of(self.data.subscriptions_of(member), self.topics),
            owner=self.data.owner,
        )
        after = reconciled(member, target, beat.owned, has_resubscribed=has_resubscribed)
        if after is not member and after != member:
            self._write(current_record(self.group_id, after))
            self._update_rebalance_timeout(after, now_ms)
        return after

    def _update_rebalance_timeout(self, member: ConsumerMember, now_ms: int) -> None:
        """Start the rebalance timeout if the member has partitions to revoke; otherwise cancel it."""
        self._rebalance_deadlines.pop(member.member_id, None)
        # A classic member revokes by joining again. Its timeout starts when a heartbeat or SyncGroup
        # answers that it has to (`mixed_group.py`: `_start_rejoin_timeout`).
        if member.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None:
            self._start_rebalance_timeout(member, now_ms)

    def _start_rebalance_timeout(self, member: ConsumerMember, now_ms: int) -> None:
        """Start a member's rebalance timeout."""
        due_ms = self._rebalance_deadlines[member.member_id] = now_ms + member.rebalance_timeout_ms
        self._builder.add_deadline(due_ms)

    # Leaving.

    def _leave_by_heartbeat(self, beat: Beat) -> HeartbeatAnswer:
        """Let a member leave. A static one may come back before its session ends."""
        member = leaving_member(self.data, beat, group_id=self.group_id)
        if isinstance(member, HeartbeatAnswer):
            return member
        if beat.member_epoch == AWAY:
            self._write(current_record(self.group_id, replace(member, epoch=AWAY, revoking={})))
            self._rebalance_deadlines.pop(member.member_id, None)
        else:
            self._fence([member], f"{member.member_id} left")
        return HeartbeatAnswer(member_id=member.member_id, member_epoch=beat.member_epoch)

    def leave(self, leaving: Iterable[Leave], ticket: Ticket, *, now_ms: int) -> Outcome:
        """Remove members of the classic protocol, or static members at an operator's request. Others
        leave with a heartbeat."""
        found = [self._member_named(each) for each in leaving]
        gone = list({each.member_id: each for each in found if each is not None}.values())
        if gone:
            self._fence(gone, f"{first_names(each.member_id for each in gone)} left")
        unknown = ErrorCode.UNKNOWN_MEMBER_ID
        codes = tuple(unknown if each is None else ErrorCode.NONE for each in found)
        self._builder.answer(ticket, Left(error_codes=codes))
        return self._outcome()

    def may_leave(self, leave: Leave) -> bool:
        """Returns whether this member exists and may leave with a LeaveGroup."""
        return self._member_named(leave) is not None

    def _member_named(self, leave: Leave) -> ConsumerMember | None:
        if leave.member_id == NO_MEMBER:
            return self.data.static_member(leave.instance_id or "")
        member = self.data.members.get(leave.member_id)
        return member if member is not None and member.classic is not None else None

    def _fence(self, members: Iterable[ConsumerMember], reason: str) -> None:
        """Remove members. The next heartbeat assigns their partitions to others."""
        for member in members:
            self._forget(member.member_id)
        self._forget_unused_regexes()
        self._begin_epoch()
        self._builder.note(f"begins epoch {self.data.epoch}: {reason}")

    def _forget(self, member_id: str) -> None:
        for record in member_tombstones(self.group_id, member_id):
            self._write(record)
        self._session_deadlines.pop(member_id, None)
        self._rebalance_deadlines.pop(member_id, None)

    # Time.

    def expire(self, now_ms: int) -> Outcome:
        """Handle what is due: fence members that are silent, or late in a rebalance.

        The coordinator calls it when the deadline of the latest outcome has passed (`_on_deadline`), and
        once after a load, to give every member a full session (`_start_sessions`).
        """
        self._builder.forget_deadline()
        for member in self.data.members.values():
            if member.member_id not in self._session_deadlines:
                self._session_deadlines[member.member_id] = now_ms + self._session_ms(member)
                self._update_rebalance_timeout(member, now_ms)
        self._fence_late(self._session_deadlines, "fell silent", now_ms)
        self._fence_late(self._rebalance_deadlines, "took too long to rebalance", now_ms)
        for due_ms in (*self._session_deadlines.values(), *self._rebalance_deadlines.values()):
            self._builder.add_deadline(due_ms)
        return self._outcome()

    def _fence_late(self, deadlines: dict[str, int], what: str, now_ms: int) -> None:
        late = [member_id for member_id, due_ms in deadlines.items() if due_ms <= now_ms]
        if late:
            members = [self.data.members[member_id] for member_id in late]
            self._fence(members, f"{first_names(late)} {what}")

    def _renew_session(self, member_id: str, now_ms: int) -> None:
        session_ms = self._session_ms(self.data.members[member_id])
        due_ms = self._session_deadlines[member_id] = now_ms + session_ms
        self._builder.add_deadline(due_ms)

    def _session_ms(self, member: ConsumerMember) -> int:
        """Returns a member's session timeout; members of the classic protocol choose their own."""
        if member.classic is not None:
            return member.classic.session_timeout_ms
        return self._settings.times_of(self.group_id).session_timeout_ms

    # Outcomes.

    def abandon(self, error_code: ErrorCode) -> Outcome:
        """Fail all waiting requests. In this protocol no request waits."""
        return Outcome()

    def _write(self, record: GroupRecord) -> None:
        self.changes += 1
        self.data.apply(record)
        self._records.append(record)

    def _outcome(self) -> Outcome:
        records, self._records = tuple(self._records), []
        return self._builder.build(records)
