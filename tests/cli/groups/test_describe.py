"""How commands describe a group of either protocol."""

from __future__ import annotations

import uuid

import pytest

from cli.base.command_end import CommandFailed
from cli.groups.describe import Group, GroupMember, by_topic, refuse_running
from protocol.internal_topics.consumer_protocol import Assignment, TopicPartitions, write
from protocol.messages import consumer_group_describe as described
from protocol.messages.describe_groups import DescribedGroupMember


def classic(name: str, assignment: bytes, protocol_type: str = "consumer") -> GroupMember:
    member = DescribedGroupMember(
        member_id=name,
        client_id=name,
        client_host="/127.0.0.1",
        member_metadata=b"",
        member_assignment=assignment,
    )
    return GroupMember.of_classic(member, protocol_type)


def consumer(name: str, *partitions: int) -> GroupMember:
    parts = described.TopicPartitions(
        topic_id=uuid.UUID(int=1), topic_name="orders", partitions=partitions
    )
    nothing = described.Assignment(topic_partitions=())
    member = described.Member(
        member_id=name,
        member_epoch=1,
        client_id=name,
        client_host="/127.0.0.1",
        subscribed_topic_names=(),
        assignment=described.Assignment(topic_partitions=(parts,)),
        target_assignment=nothing,
    )
    return GroupMember.of_consumer(member)


def group(*members: GroupMember) -> Group:
    return Group(
        group_id="g",
        type="consumer",
        state="Stable",
        protocol_type="consumer",
        protocol="range",
        members=members,
    )


def assigned(*partitions: int) -> bytes:
    parts = TopicPartitions(topic="orders", partitions=partitions)
    return write(Assignment(assigned_partitions=(parts,)))


def test_readers_are_who_has_a_partition_assigned() -> None:
    one, two, odd = classic("a", assigned(0, 2)), classic("b", assigned()), classic("c", b"\0")

    assert group(one, two, odd).readers == {("orders", 0): one, ("orders", 2): one}
    assert group(classic("a", assigned(0), "connect")).readers == {}


def test_readers_of_the_consumer_protocol_are_who_has_a_partition() -> None:
    one, two = consumer("a", 0, 2), consumer("b", 1)

    assert group(one, two).readers == {
        ("orders", 0): one,
        ("orders", 2): one,
        ("orders", 1): two,
    }


def test_a_group_with_members_is_not_changed() -> None:
    refuse_running(group(), "offsets can only be reset")
    with pytest.raises(CommandFailed, match="g has 2 members: stop them first"):
        refuse_running(group(classic("a", b""), classic("b", b"")), "offsets can only be reset")


def test_partitions_are_sorted_by_topic() -> None:
    assert by_topic({("b", 1), ("a", 3), ("a", 0)}) == {"a": [0, 3], "b": [1]}
