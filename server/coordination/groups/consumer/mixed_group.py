"""A group of the consumer protocol that also accepts members of the classic protocol.

To the group such a member is like any other: the broker assigns its partitions, and it reconciles on
its own. Only its requests differ; its generation is its member epoch:

    JoinGroup   subscription and owned partitions   handled like a full heartbeat
    SyncGroup   asks for its assignment             answered with the assignment made in the JoinGroup
    Heartbeat   may get REBALANCE_IN_PROGRESS       then it rejoins, to revoke partitions or get new ones

There is no leader, so members do not assign. A member has its rebalance timeout to rejoin, and to sync.

Source: Apache Kafka, GroupMetadataManager.java (classicGroupJoinToConsumerGroup and others); KIP-848.
"""

from __future__ import annotations

from protocol.internal_topics.consumer_protocol import (
    PROTOCOL_TYPE,
    Assignment,
    TopicPartitions,
    decode_subscription,
    write,
)
from protocol.wire.error_codes import ErrorCode
from protocol.wire.errors import DecodeError
from server.coordination.groups import events
from server.coordination.groups.consumer.group import ConsumerGroup
from server.coordination.groups.consumer.member import JOINING, ConsumerMember, MemberState
from server.coordination.groups.consumer.topic_catalog import TopicCatalog
from server.coordination.groups.events import (
    NO_MEMBER,
    Beat,
    ClassicMember,
    Join,
    Subscribed,
    Sync,
    Ticket,
)
from server.coordination.groups.outcome import Joined, Outcome, Synced


class MixedGroup(ConsumerGroup):
    """A consumer group with steps for requests of the classic protocol."""

    __slots__ = ()

    def join(self, join: Join, ticket: Ticket, *, now_ms: int) -> Outcome:
        """Answer a JoinGroup. The answer never waits."""
        joined = self._join(join, now_ms)
        self._builder.answer(ticket, joined)
        return self._outcome()

    def _join(self, join: Join, now_ms: int) -> Joined:
        beat = self._as_heartbeat(join)
        if isinstance(beat, ErrorCode):
            return Joined(error_code=beat, member_id=join.member_id)
        if join.member_id == NO_MEMBER and join.instance_id is None and not join.knows_its_id:
            code = ErrorCode.MEMBER_ID_REQUIRED
            return Joined(error_code=code, member_id=join.new_member_id)
        answer = self._heartbeat(beat, now_ms)
        if answer.error_code:
            return Joined(error_code=answer.error_code, member_id=join.member_id)
        self._start_rebalance_timeout(self.data.members[beat.member_id], now_ms)
        return Joined(
            member_id=beat.member_id,
            generation=answer.member_epoch,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=join.protocols[0].name,
        )

    def _as_heartbeat(self, join: Join) -> Beat | ErrorCode:
        """Returns the heartbeat that is equivalent to a JoinGroup, or an error."""
        if not self._supports(join):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        try:
            subscription = join.subscription or _decoded(join)
        except DecodeError:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if join.member_id != NO_MEMBER and join.instance_id is not None:
            owner = self._find_member(join.member_id, join.instance_id)
            if isinstance(owner, ErrorCode):
                return owner
        return Beat(
            member_id=join.member_id or join.new_member_id,
            member_epoch=JOINING,
            instance_id=join.instance_id,
            rack_id=subscription.rack_id,
            rebalance_timeout_ms=join.rebalance_timeout_ms,
            topic_names=subscription.topic_names,
            topic_regex="",
            owned=owned_of(subscription, self.topics),
            client_id=join.client_id,
            client_host=join.client_host,
            classic=ClassicMember(
                session_timeout_ms=join.session_timeout_ms, protocols=join.protocols
            ),
        )

    def _supports(self, join: Join) -> bool:
        """Returns whether this client and all classic members have a protocol in common."""
        if join.protocol_type != PROTOCOL_TYPE:
            return False
        names = {protocol.name for protocol in join.protocols}
        for member in self.data.members.values():
            if member.classic is not None and member.member_id != join.member_id:
                names &= {protocol.name for protocol in member.classic.protocols}
        return bool(names)

    def sync(self, sync: Sync, ticket: Ticket, *, now_ms: int) -> Outcome:
        """Answer a SyncGroup. The answer never waits."""
        self._builder.answer(ticket, self._sync(sync, now_ms))
        return self._outcome()

    def _sync(self, sync: Sync, now_ms: int) -> Synced:
        member = self._classic_member(sync.member_id, sync.instance_id, sync.generation)
        if isinstance(member, ErrorCode):
            return Synced(error_code=member)
        assert member.classic is not None
        name = member.classic.protocols[0].name
        is_other = sync.protocol_type not in (None, PROTOCOL_TYPE)
        if is_other or sync.protocol_name not in (None, name):
            return Synced(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        # A member that has to revoke gets the partitions that it keeps, and rejoins once it has
        # revoked.
        is_revoking = member.state is MemberState.UNREVOKED_PARTITIONS
        if member.epoch < self.data.epoch and not is_revoking:
            self._start_rejoin_timeout(member, now_ms)
            return Synced(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        self._rebalance_deadlines.pop(member.member_id, None)
        self._renew_session(member.member_id, now_ms)
        return Synced(
            protocol_type=PROTOCOL_TYPE,
            protocol_name=name,
            assignment=write(assignment_of(member.assignment, self.topics), 0),
        )

    def classic_heartbeat(
        self, member_id: str, instance_id: str | None, generation: int, *, now_ms: int
    ) -> tuple[ErrorCode, Outcome]:
        """Renew a member's session. Returns REBALANCE_IN_PROGRESS if it has to rejoin."""
        member = self._classic_member(member_id, instance_id, generation)
        if isinstance(member, ErrorCode):
            return member, self._outcome()
        self._renew_session(member_id, now_ms)
        if not self._must_rejoin(member):
            return ErrorCode.NONE, self._outcome()
        self._start_rejoin_timeout(member, now_ms)
        return ErrorCode.REBALANCE_IN_PROGRESS, self._outcome()

    def _must_rejoin(self, member: ConsumerMember) -> bool:
        match member.state:
            case MemberState.UNREVOKED_PARTITIONS:
                return True
            case MemberState.UNRELEASED_PARTITIONS if not self._waits_for_others(member):
                return True
            case _:
                return member.epoch < self.data.epoch

    def _waits_for_others(self, member: ConsumerMember) -> bool:
        """Returns whether other members still have partitions of its target."""
        target = self.data.targets.get(member.member_id, {})
        owners = {self.data.owner(topic, n) for topic, numbers in target.items() for n in numbers}
        return bool(owners - {None, member.member_id})

    def _start_rejoin_timeout(self, member: ConsumerMember, now_ms: int) -> None:
        """Start the rebalance timeout, within which the member has to join again, unless it runs."""
        if member.member_id not in self._rebalance_deadlines:
            self._start_rebalance_timeout(member, now_ms)

    def _classic_member(
        self, member_id: str, instance_id: str | None, generation: int
    ) -> ConsumerMember | ErrorCode:
        """Returns the member that sent a classic request, or an error."""
        member = self._find_member(member_id, instance_id)
        if isinstance(member, ErrorCode):
            return member
        if member.classic is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return member if generation == member.epoch else ErrorCode.ILLEGAL_GENERATION

    def _find_member(self, member_id: str, instance_id: str | None) -> ConsumerMember | ErrorCode:
        if instance_id is None:
            return self.data.members.get(member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        owner = self.data.static_member(instance_id)
        if owner is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return owner if owner.member_id == member_id else ErrorCode.FENCED_INSTANCE_ID


def _decoded(join: Join) -> Subscribed:
    """Decode the subscription of a member's first protocol. Raises DecodeError."""
    subscription = decode_subscription(join.protocols[0].metadata)
    return Subscribed(
        topic_names=subscription.topics,
        rack_id=subscription.rack_id,
        owned={each.topic: frozenset(each.partitions) for each in subscription.owned_partitions},
    )


def owned_of(subscription: Subscribed, topics: TopicCatalog) -> events.Assignment:
    """Returns the existing partitions that a classic member claims to own."""
    found = ((topics.get(name), numbers) for name, numbers in subscription.owned.items())
    return {topic.id: numbers for topic, numbers in found if topic is not None}


def assignment_of(assigned: events.Assignment, topics: TopicCatalog) -> Assignment:
    """Returns the assignment in the format of the classic protocol."""
    found = ((topics.by_id(topic), numbers) for topic, numbers in assigned.items())
    return Assignment(
        assigned_partitions=tuple(
            TopicPartitions(topic=topic.name, partitions=tuple(sorted(numbers)))
            for topic, numbers in found
            if topic is not None
        )
    )
