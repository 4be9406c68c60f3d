"""A group of the consumer protocol, by examples: members that join, reconcile, are fenced, come back."""

from __future__ import annotations

import uuid

import pytest

from protocol.internal_topics.consumer_group_records import ConsumerGroupCurrentMemberAssignmentKey
from protocol.wire.error_codes import ErrorCode
from server.coordination.groups.consumer.member import AWAY, MemberState
from server.coordination.groups.events import Beat, Leave
from tests.harness.consumer_world import (
    BEAT_MS,
    REBALANCE_TIMEOUT_MS,
    SESSION_TIMEOUT_MS,
    ConsumerClient,
    ConsumerWorld,
)


def world_of(*counts: int, **settings: object) -> tuple[ConsumerWorld, list[uuid.UUID]]:
    """A world with topics t, t1, t2 ... of so many partitions."""
    world = ConsumerWorld(**settings)  # type: ignore[arg-type]
    names = ["t", *(f"t{number}" for number in range(1, len(counts)))]
    return world, [world.topics.put(*each) for each in zip(names, counts, strict=True)]


def state(world: ConsumerWorld) -> str:
    return world.group.state.value


def numbers(client: ConsumerClient) -> list[int]:
    return sorted(number for _, number in client.owned)


def test_the_first_member_has_everything_at_once() -> None:
    world, (topic,) = world_of(3)
    client = world.client()

    answer = client.beat()

    assert (answer.error_code, answer.member_epoch) == (ErrorCode.NONE, 2)
    assert answer.assignment == {topic: frozenset({0, 1, 2})}
    assert answer.heartbeat_interval_ms == BEAT_MS
    assert state(world) == "Stable"


def test_an_assignment_is_told_once_and_to_who_says_everything() -> None:
    world, (topic,) = world_of(1)
    client = world.client()
    client.beat()

    assert client.beat().assignment is None
    client.has_to_say_all = True
    assert client.beat().assignment == {topic: frozenset({0})}
    assert not world.records, "nothing has changed, so nothing is written"


def test_a_member_gives_up_before_another_is_given() -> None:
    world, _ = world_of(4)
    first, second = world.client(), world.client()
    first.beat()
    first.revokes_slowly = True

    assert second.beat().assignment == {}
    assert numbers(second) == []
    assert state(world) == "Reconciling"
    first.beat()
    assert len(first.target) == 2
    assert world.group.data.members["m0"].state is MemberState.UNREVOKED_PARTITIONS
    assert world.group.data.members["m0"].epoch == 2, "it stays at its epoch"
    assert second.beat().assignment is None, "the first one still has it"

    first.revokes_slowly = False
    first.beat()
    second.beat()
    assert numbers(first) + numbers(second) == [0, 1, 2, 3]
    assert state(world) == "Stable"


def test_who_does_not_give_up_in_time_is_fenced() -> None:
    world, _ = world_of(4)
    first, second = world.client(), world.client()
    first.beat()
    first.revokes_slowly = True
    second.beat()
    first.beat()

    for _ in range(REBALANCE_TIMEOUT_MS // BEAT_MS + 1):
        world.pass_time(BEAT_MS)
        second.beat()

    assert list(world.group.data.members) == ["m1"]
    assert numbers(second) == [0, 1, 2, 3]
    assert first.beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert any("took too long to rebalance" in note for note in world.notes)


def test_who_falls_silent_is_fenced_and_its_partitions_go_to_the_others() -> None:
    world, _ = world_of(4)
    first, second = world.client(), world.client()
    world.settle(first, second)

    world.pass_time(SESSION_TIMEOUT_MS - 1)
    second.beat()
    world.pass_time(1)

    assert list(world.group.data.members) == ["m1"]
    assert state(world) == "Assigning"
    second.beat()
    assert numbers(second) == [0, 1, 2, 3]


def test_who_leaves_leaves_nothing_behind() -> None:
    world, _ = world_of(2)
    client = world.client()
    client.beat()

    answer = client.leave()

    assert (answer.member_epoch, answer.error_code) == (-1, ErrorCode.NONE)
    assert state(world) == "Empty"
    assert {type(key).__name__ for key in world.stored} == {
        "ConsumerGroupMetadataKey",
        "ConsumerGroupTargetAssignmentMetadataKey",
    }


@pytest.mark.parametrize(("epoch", "owned"), [(3, {}), (1, {}), (1, None)])
def test_a_member_at_another_epoch_is_fenced(
    epoch: int, owned: dict[uuid.UUID, frozenset[int]] | None
) -> None:
    world, _ = world_of(1)
    client = world.client()
    client.beat()

    answer = world.beat(Beat(member_id="m0", member_epoch=epoch, owned=owned))

    assert answer.error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert not world.records


def test_who_has_missed_an_answer_goes_on_if_it_has_nothing_that_it_must_not_have() -> None:
    world, (topic,) = world_of(4)
    first, second = world.client(), world.client()
    first.beat()
    second.beat()
    first.beat()
    first.beat(is_lost=True)

    assert first.epoch == 2
    assert world.group.data.members["m0"].epoch == 3
    assert first.beat().error_code == ErrorCode.NONE
    greedy = Beat(member_id="m0", member_epoch=2, owned={topic: frozenset(range(4))})
    assert world.beat(greedy).error_code == ErrorCode.FENCED_MEMBER_EPOCH


def test_a_fenced_member_joins_again_under_its_id() -> None:
    world, _ = world_of(2)
    client = world.client()
    client.beat()
    client.epoch = 9

    client.beat()
    assert client.owned == set()
    client.beat()

    assert numbers(client) == [0, 1]


def test_a_full_group_takes_nobody_in() -> None:
    world, _ = world_of(1, size_max=1)
    world.client().beat()

    answer = world.client().beat()

    assert answer.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert answer.message == "The consumer group has reached its maximum capacity of 1 members."


# Static members.


def test_a_static_member_that_goes_away_has_its_partitions_when_it_is_back() -> None:
    world, _ = world_of(4)
    static, other = world.client(instance_id="i"), world.client()
    world.settle(static, other)
    before, epoch = numbers(static), world.group.data.epoch

    assert static.goes_away().member_epoch == AWAY
    other.beat()
    back = world.client(instance_id="i")
    back.beat()

    assert numbers(back) == before
    assert world.group.data.epoch == epoch, "nobody else is bothered"
    assert state(world) == "Stable"
    assert world.beat(Beat(member_id="m0", member_epoch=epoch, instance_id="i")).error_code == (
        ErrorCode.FENCED_INSTANCE_ID
    )


def test_a_static_member_that_stays_away_is_fenced() -> None:
    world, _ = world_of(4)
    static, other = world.client(instance_id="i"), world.client()
    world.settle(static, other)
    static.goes_away()

    for _ in range(SESSION_TIMEOUT_MS // BEAT_MS):
        other.beat()
        world.pass_time(BEAT_MS)
    other.beat()

    assert numbers(other) == [0, 1, 2, 3]


def test_an_instance_id_that_is_in_use_is_not_given_to_another() -> None:
    world, _ = world_of(1)
    world.client(instance_id="i").beat()

    assert world.client(instance_id="i").beat().error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    unknown = Beat(member_id="x", member_epoch=1, instance_id="j")
    assert world.beat(unknown).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_operator_sends_a_static_member_away_and_no_other() -> None:
    world, _ = world_of(1)
    world.client(instance_id="i").beat()
    world.client().beat()

    codes = world.send_away(
        Leave(member_id="", instance_id="i"),
        Leave(member_id="m1"),
        Leave(member_id="", instance_id="nobody"),
    )

    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert codes == (ErrorCode.NONE, unknown, unknown)
    assert list(world.group.data.members) == ["m1"]


# Topics.


def test_partitions_that_are_added_are_assigned() -> None:
    world, _ = world_of(1)
    client = world.client()
    client.beat()

    world.topics.put("t", 3)
    client.beat()

    assert numbers(client) == [0, 1, 2]
    assert world.group.data.epoch == 3


def test_a_topic_that_comes_later_is_assigned_and_one_that_goes_is_taken_away() -> None:
    world, _ = world_of(1)
    client = world.client(topics=("later",))
    assert client.beat().assignment == {}

    topic = world.topics.put("later", 2)
    assert client.beat().assignment == {topic: frozenset({0, 1})}
    world.topics.delete("later")
    assert client.beat().assignment == {}


def test_a_topic_that_nobody_wants_changes_nothing() -> None:
    world, _ = world_of(1)
    client = world.client()
    client.beat()

    world.topics.put("other", 1)
    client.beat()

    assert not world.records


def test_who_unsubscribes_is_told_at_once() -> None:
    world, (one, _) = world_of(1, 1)
    client = world.client(topics=("t", "t1"))
    client.beat()

    client.subscribe("t")

    assert client.beat().assignment == {one: frozenset({0})}


# Regular expressions.


def test_topics_are_subscribed_to_by_expression_and_by_name() -> None:
    world, _ = world_of(1, 1, 1)
    client = world.client(topics=("t",), regex="t[1x]")
    client.beat()
    assert len(client.owned) == 2

    world.topics.put("tx", 2)
    client.beat()

    assert len(client.owned) == 4
    assert world.group.data.regexes == {"t[1x]": {"t1", "tx"}}
    client.subscribe("t", regex="")
    client.beat()
    assert world.group.data.regexes == {}


def test_a_wrong_expression_is_refused_and_leaves_no_trace() -> None:
    world, _ = world_of(1)

    answer = world.client(topics=(), regex="(?=t)").beat()

    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert "`(?=t)` is not a valid regular expression" in (answer.message or "")
    assert not world.stored
    assert not world.group.data.members


# Assignors.


def test_the_assignor_is_the_one_that_most_ask_for() -> None:
    world, _ = world_of(1)
    assert world.group.assignor == "uniform"
    world.client(assignor="range").beat()
    assert world.group.assignor == "range"


# Restarts.


def test_after_a_restart_members_go_on_where_they_were() -> None:
    world, _ = world_of(4)
    clients = [world.client(), world.client(instance_id="i")]
    world.settle(*clients)
    epoch = world.group.data.epoch

    world.restart()
    world.pass_time(SESSION_TIMEOUT_MS - 1)

    for client in clients:
        assert client.beat().error_code == ErrorCode.NONE
    assert world.group.data.epoch == epoch
    assert not world.records


def test_after_a_restart_who_is_gone_is_fenced_after_a_whole_session() -> None:
    world, _ = world_of(1)
    world.client().beat()

    world.restart()
    world.pass_time(SESSION_TIMEOUT_MS)

    assert state(world) == "Empty"


def test_a_partition_is_had_since_the_epoch_in_which_it_was_assigned() -> None:
    world, (topic,) = world_of(4)
    first = world.client()
    first.beat()
    world.settle(first, world.client())
    world.topics.put("t", 6)
    world.settle(*world.clients)

    member = world.group.data.members["m0"]
    old = sorted(member.assigned[topic].values())
    assert old[:2] == [2, 2], "what it kept it has had from the beginning"
    assert old[2] == member.epoch
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id="group", member_id="m0")
    assert key in world.stored
