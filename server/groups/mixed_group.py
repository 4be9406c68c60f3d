"""A group of the consumer protocol that members of the classic protocol may be in, too.

To the group such a member is like any other: it is assigned to, and comes to its target by itself. It
only asks in another way, and its generation is its epoch:

    JoinGroup   what it wants and what it has   a heartbeat that says everything
    SyncGroup   what it shall read              what was assigned in the JoinGroup
    Heartbeat   REBALANCE_IN_PROGRESS           join again: there is something to give up, or to get

Nobody leads, so the members do not assign. It has its rebalance timeout to join again, and to sync.

Source: Apache Kafka, GroupMetadataManager.java (classicGroupJoinToConsumerGroup and others); KIP-848.
"""

from __future__ import annotations

from protocol.consumer_protocol import (
    PROTOCOL_TYPE,
    Assignment,
    Subscription,
    TopicPartitions,
    decode_subscription,
    write,
)
from protocol.error_codes import ErrorCode
from protocol.errors import DecodeError
from server.groups import assignors
from server.groups.consumer_group import ConsumerGroup
from server.groups.consumer_member import JOINING, ConsumerMember, MemberState
from server.groups.events import Beat, Join, Sync
from server.groups.member import NO_MEMBER, ClassicMember, Ticket
from server.groups.outcome import Joined, Outcome, Synced
from server.groups.topic_catalog import TopicCatalog


class MixedGroup(ConsumerGroup):
    """One group; its steps for requests of the classic protocol."""

    __slots__ = ()

    def join(self, join: Join, ticket: Ticket, *, now_ms: int) -> Outcome:
        """Answer a JoinGroup; always at once."""
        joined = self._join(join, now_ms)
        self._step.answer(ticket, joined)
        return self._outcome()

    def _join(self, join: Join, now_ms: int) -> Joined:
        beat = self._beat_of(join)
        if isinstance(beat, ErrorCode):
            return Joined(error_code=beat, member_id=join.member_id)
        if join.member_id == NO_MEMBER and join.instance_id is None and not join.knows_its_id:
            code = ErrorCode.MEMBER_ID_REQUIRED
            return Joined(error_code=code, member_id=join.new_member_id)
        beaten = self._beat(beat, now_ms)
        if beaten.error_code:
            return Joined(error_code=beaten.error_code, member_id=join.member_id)
        self._owes(self.data.members[beat.member_id], now_ms)
        return Joined(
            member_id=beat.member_id,
            generation=beaten.member_epoch,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=join.protocols[0].name,
        )

    def _beat_of(self, join: Join) -> Beat | ErrorCode:
        """What a JoinGroup says, as a heartbeat says it."""
        if not self._supports(join):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        try:
            subscription = decode_subscription(join.protocols[0].metadata)
        except DecodeError:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if join.member_id != NO_MEMBER and join.instance_id is not None:
            owner = self._found(join.member_id, join.instance_id)
            if isinstance(owner, ErrorCode):
                return owner
        return Beat(
            member_id=join.member_id or join.new_member_id,
            member_epoch=JOINING,
            instance_id=join.instance_id,
            rack_id=subscription.rack_id,
            rebalance_timeout_ms=join.rebalance_timeout_ms,
            topic_names=subscription.topics,
            topic_regex="",
            owned=owned_of(subscription, self.topics),
            client_id=join.client_id,
            client_host=join.client_host,
            classic=ClassicMember(
                session_timeout_ms=join.session_timeout_ms, protocols=join.protocols
            ),
        )

    def _supports(self, join: Join) -> bool:
        """Whether all members of the classic protocol have a protocol in common with it."""
        if join.protocol_type != PROTOCOL_TYPE:
            return False
        names = {protocol.name for protocol in join.protocols}
        for member in self.data.members.values():
            if member.classic is not None and member.member_id != join.member_id:
                names &= {protocol.name for protocol in member.classic.protocols}
        return bool(names)

    def sync(self, sync: Sync, ticket: Ticket, *, now_ms: int) -> Outcome:
        """Answer a SyncGroup; always at once."""
        self._step.answer(ticket, self._sync(sync, now_ms))
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
        # One that has to give something up hears here what it keeps, and joins again when it has.
        is_revoking = member.state is MemberState.UNREVOKED_PARTITIONS
        if member.epoch < self.data.epoch and not is_revoking:
            self._has_to_join(member, now_ms)
            return Synced(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        self._debts.pop(member.member_id, None)
        self._lives(member.member_id, now_ms)
        return Synced(
            protocol_type=PROTOCOL_TYPE,
            protocol_name=name,
            assignment=write(assignment_of(member.assignment, self.topics), 0),
        )

    def classic_heartbeat(
        self, member_id: str, instance_id: str | None, generation: int, *, now_ms: int
    ) -> tuple[ErrorCode, Outcome]:
        """Note that a member lives, and say whether it shall join again."""
        member = self._classic_member(member_id, instance_id, generation)
        if isinstance(member, ErrorCode):
            return member, self._outcome()
        self._lives(member_id, now_ms)
        if not self._shall_join(member):
            return ErrorCode.NONE, self._outcome()
        self._has_to_join(member, now_ms)
        return ErrorCode.REBALANCE_IN_PROGRESS, self._outcome()

    def _shall_join(self, member: ConsumerMember) -> bool:
        match member.state:
            case MemberState.UNREVOKED_PARTITIONS:
                return True
            case MemberState.UNRELEASED_PARTITIONS if not self._waits_for_others(member):
                return True
            case _:
                return member.epoch < self.data.epoch

    def _waits_for_others(self, member: ConsumerMember) -> bool:
        """Whether others still have something that it shall have."""
        target = self.data.targets.get(member.member_id, {})
        owners = {self.data.owner(topic, n) for topic, numbers in target.items() for n in numbers}
        return bool(owners - {None, member.member_id})

    def _has_to_join(self, member: ConsumerMember, now_ms: int) -> None:
        if member.member_id not in self._debts:
            self._owes(member, now_ms)

    def _classic_member(
        self, member_id: str, instance_id: str | None, generation: int
    ) -> ConsumerMember | ErrorCode:
        """Who a request of the classic protocol comes from."""
        member = self._found(member_id, instance_id)
        if isinstance(member, ErrorCode):
            return member
        if member.classic is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return member if generation == member.epoch else ErrorCode.ILLEGAL_GENERATION

    def _found(self, member_id: str, instance_id: str | None) -> ConsumerMember | ErrorCode:
        if instance_id is None:
            return self.data.members.get(member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        owner = self.data.static_member(instance_id)
        if owner is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return owner if owner.member_id == member_id else ErrorCode.FENCED_INSTANCE_ID


def owned_of(subscription: Subscription, topics: TopicCatalog) -> assignors.Assignment:
    """What a member of the classic protocol says that it has, of topics that exist."""
    found = ((topics.get(each.topic), each.partitions) for each in subscription.owned_partitions)
    return {topic.id: frozenset(numbers) for topic, numbers in found if topic is not None}


def assignment_of(assigned: assignors.Assignment, topics: TopicCatalog) -> Assignment:
    """The same as members of the classic protocol are told it."""
    found = ((topics.by_id(topic), numbers) for topic, numbers in assigned.items())
    return Assignment(
        assigned_partitions=tuple(
            TopicPartitions(topic=topic.name, partitions=tuple(sorted(numbers)))
            for topic, numbers in found
            if topic is not None
        )
    )
