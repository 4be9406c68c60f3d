"""The state of a consumer group, which changes only by applying records.

A step makes records and applies them at once; a load applies the records that it reads. The records of
a compacted group may come in any order, but there is one for each key, and together they describe the
state at one moment. Pure.

Source: Apache Kafka, ConsumerGroup.java, GroupMetadataManager.java `replay`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator

from protocol.internal_topics.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from protocol.internal_topics.group_records import GroupRecord, GroupValue
from server.coordination.groups.consumer.member import ConsumerMember
from server.coordination.groups.consumer.records import target_of, with_current, with_subscription
from server.coordination.groups.events import Assignment


class ConsumerState:
    """A group's members, their targets, and the owner of each partition."""

    __slots__ = (
        "_by_instance",
        "_owners",
        "assignment_epoch",
        "epoch",
        "members",
        "metadata_hash",
        "regexes",
        "targets",
    )

    def __init__(self) -> None:
        # Others may read these; only records change them.
        self.epoch = 0
        """The group's epoch; it grows whenever a new target assignment is needed."""
        self.metadata_hash = 0
        """Hash of the group's subscribed topics, as of its epoch."""
        self.assignment_epoch = 0
        """The group epoch for which the target assignment was made."""
        self.members: dict[str, ConsumerMember] = {}
        self.targets: dict[str, Assignment] = {}
        """By member id; members without a target have no partitions to read."""
        self.regexes: dict[str, frozenset[str]] = {}
        """The matching topics of each regular expression."""
        self._by_instance: dict[str, str] = {}
        self._owners: dict[tuple[uuid.UUID, int], str] = {}

    def copy(self) -> ConsumerState:
        """Returns an independent copy. Both share their values, which never change."""
        other = ConsumerState()
        other.epoch, other.metadata_hash = self.epoch, self.metadata_hash
        other.assignment_epoch = self.assignment_epoch
        other.members, other.targets = self.members.copy(), self.targets.copy()
        other.regexes = self.regexes.copy()
        other._by_instance, other._owners = self._by_instance.copy(), self._owners.copy()
        return other

    # Queries.

    def static_member(self, instance_id: str) -> ConsumerMember | None:
        return self.members.get(self._by_instance.get(instance_id, ""))

    def owner(self, topic: uuid.UUID, number: int) -> str | None:
        """Returns the member that has a partition, or has not revoked it yet."""
        return self._owners.get((topic, number))

    def subscriptions_of(self, member: ConsumerMember) -> tuple[frozenset[str], ...]:
        """Returns sets of the topic names that a member is subscribed to. Some of these topics may not
        exist."""
        matches = self.regexes.get(member.regex)
        return (member.topics, matches) if matches else (member.topics,)

    @property
    def subscriptions(self) -> list[frozenset[str]]:
        """Sets of the topic names that the members are subscribed to. They are not compared with each
        other: that takes long for large ones."""
        members = self.members.values()
        return [names for each in members for names in self.subscriptions_of(each)]

    @property
    def topics(self) -> frozenset[str]:
        """The topic names that any member is subscribed to."""
        return frozenset[str]().union(*self.subscriptions)

    # Changes.

    def apply(self, record: GroupRecord) -> None:
        """Apply a record; types that this release does not use are ignored."""
        key, value = record.key, record.value
        match key:
            case ConsumerGroupMetadataKey():
                self._apply_epoch(value)
            case ConsumerGroupTargetAssignmentMetadataKey():
                self._apply_target_epoch(value)
            case ConsumerGroupMemberMetadataKey():
                self._apply_subscription(key.member_id, value)
            case ConsumerGroupTargetAssignmentMemberKey():
                self._apply_target(key.member_id, value)
            case ConsumerGroupCurrentMemberAssignmentKey():
                self._apply_current(key.member_id, value)
            case ConsumerGroupRegularExpressionKey():
                self._apply_regex(key.regular_expression, value)
            case _:
                pass

    def _apply_epoch(self, value: GroupValue | None) -> None:
        assert value is None or isinstance(value, ConsumerGroupMetadataValue)
        self.epoch = 0 if value is None else value.epoch
        self.metadata_hash = 0 if value is None else value.metadata_hash

    def _apply_target_epoch(self, value: GroupValue | None) -> None:
        assert value is None or isinstance(value, ConsumerGroupTargetAssignmentMetadataValue)
        self.assignment_epoch = 0 if value is None else value.assignment_epoch

    def _apply_target(self, member_id: str, value: GroupValue | None) -> None:
        assert value is None or isinstance(value, ConsumerGroupTargetAssignmentMemberValue)
        if value is None:
            self.targets.pop(member_id, None)
        else:
            self.targets[member_id] = target_of(value)

    def _apply_regex(self, regex: str, value: GroupValue | None) -> None:
        assert value is None or isinstance(value, ConsumerGroupRegularExpressionValue)
        if value is None:
            self.regexes.pop(regex, None)
        else:
            self.regexes[regex] = frozenset(value.topics)

    def _apply_subscription(self, member_id: str, value: GroupValue | None) -> None:
        assert value is None or isinstance(value, ConsumerGroupMemberMetadataValue)
        if value is None:
            self._put(member_id, None)
        else:
            self._put(member_id, with_subscription(self._member(member_id), value))

    def _apply_current(self, member_id: str, value: GroupValue | None) -> None:
        assert value is None or isinstance(value, ConsumerGroupCurrentMemberAssignmentValue)
        if value is not None:
            self._put(member_id, with_current(self._member(member_id), value))
        elif member_id in self.members:
            # The tombstone of the member's subscription follows and removes the member.
            self._release(self.members[member_id])

    def _member(self, member_id: str) -> ConsumerMember:
        return self.members.get(member_id) or ConsumerMember(member_id=member_id)

    def _put(self, member_id: str, member: ConsumerMember | None) -> None:
        old = self.members.pop(member_id, None)
        if old is not None:
            self._release(old)
            if self._by_instance.get(old.instance_id or "") == member_id:
                del self._by_instance[old.instance_id or ""]
        if member is None:
            return
        self.members[member_id] = member
        self._owners.update(dict.fromkeys(_parts(member), member_id))
        if member.instance_id is not None:
            self._by_instance[member.instance_id] = member_id

    def _release(self, member: ConsumerMember) -> None:
        for part in _parts(member):
            if self._owners.get(part) == member.member_id:
                del self._owners[part]


def state_of(records: Iterable[GroupRecord]) -> ConsumerState:
    """Returns the state that these records describe."""
    state = ConsumerState()
    for record in records:
        state.apply(record)
    return state


def _parts(member: ConsumerMember) -> Iterator[tuple[uuid.UUID, int]]:
    for holding in (member.assigned, member.revoking):
        for topic, numbers in holding.items():
            for number in numbers:
                yield topic, number
