"""A group is what its records say, in any order that a compacted log may have."""

from __future__ import annotations

import uuid

from hypothesis import given
from hypothesis import strategies as st

from protocol.internal_topics.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    OwnedTopic,
)
from protocol.internal_topics.group_records import GroupRecord
from server.coordination.groups.consumer.member import MemberState
from server.coordination.groups.consumer.state import ConsumerState, state_of
from tests.harness.consumer_world import ConsumerWorld, told_of

TOPIC = uuid.UUID(int=7)


def a_group() -> ConsumerWorld:
    """Members of all kinds, in the middle of a rebalance."""
    world = ConsumerWorld()
    world.topics.put("t", 6)
    world.topics.put("tx", 2)
    slow = world.client()
    world.settle(slow, world.client(instance_id="i"), world.classic_client())
    slow.revokes_slowly = True
    world.client(topics=(), regex="t.*").beat()
    slow.beat()
    return world


@given(data=st.data())
def test_the_order_of_records_does_not_matter(data: st.DataObject) -> None:
    world = a_group()
    records = data.draw(st.permutations(list(world.stored.values())))

    again = state_of(records)

    assert told_of(again) == told_of(world.group.data)
    parts = [(topic.id, number) for topic in world.topics.all() for number in topic.partitions]
    owners = world.group.data.owner
    assert [again.owner(*part) for part in parts] == [owners(*part) for part in parts]
    assert again.static_member("i") == world.group.data.static_member("i")


def test_who_is_gone_has_nothing_any_more() -> None:
    world = a_group()
    for client in tuple(world.clients):
        client.leave()

    state = world.group.data
    assert (state.members, state.targets, state.regexes) == ({}, {}, {})
    assert all(state.owner(topic.id, 0) is None for topic in world.topics.all())


def current(state: int, epochs: tuple[int, ...] | None) -> GroupRecord:
    owned = OwnedTopic(topic_id=TOPIC, partitions=(0, 1), assignment_epochs=epochs)
    return GroupRecord(
        ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="m"),
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=5,
            previous_member_epoch=4,
            state=state,
            assigned_partitions=(owned,),
            partitions_pending_revocation=(),
        ),
    )


def test_where_earlier_releases_say_no_epochs_of_partitions_the_members_count() -> None:
    for epochs in (None, ()):
        member = state_of([current(0, epochs)]).members["m"]
        assert member.assigned == {TOPIC: {0: 5, 1: 5}}


def test_a_state_of_a_later_release_is_unknown() -> None:
    assert state_of([current(9, (1, 2))]).members["m"].state is MemberState.UNKNOWN


def test_nothing_is_known_of_a_group_without_records() -> None:
    assert told_of(state_of([])) == told_of(ConsumerState())
