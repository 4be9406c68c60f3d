"""The classic group protocol: who is in a generation, what it gets, and who is not waited for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from protocol.wire.error_codes import ErrorCode
from server.coordination.groups.classic.group import NEW_MEMBER_JOIN_TIMEOUT_MS, GroupState
from server.coordination.groups.events import Leave, Sync
from server.coordination.groups.outcome import Joined, Synced
from tests.harness.group_world import (
    INITIAL_DELAY_MS,
    REBALANCE_TIMEOUT_MS,
    SESSION_TIMEOUT_MS,
    Call,
    GroupClient,
    GroupWorld,
)


def joined(call: Call) -> Joined:
    assert isinstance(call.answer, Joined)
    return call.answer


def synced(call: Call) -> Synced:
    assert isinstance(call.answer, Synced)
    return call.answer


def stable_group(*names: str, **settings: object) -> tuple[GroupWorld, list[GroupClient]]:
    world = GroupWorld()
    clients = [world.client(name, **settings) for name in names]
    world.stabilize(*clients)
    return world, clients


# A first generation.


def test_a_new_member_is_told_its_id_and_comes_again_with_it() -> None:
    world = GroupWorld()
    client = world.client("a")

    answer = joined(client._join())

    assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert client.member_id == answer.member_id == "a-1"
    assert len(world.group.roster) == 0
    client._join()
    assert [member.member_id for member in world.group.roster] == ["a-1"]


def test_a_client_from_before_that_is_a_member_at_once() -> None:
    world = GroupWorld()
    world.client("a", knows_its_id=True)._join()
    assert len(world.group.roster) == 1


def test_the_first_rebalance_waits_for_more_members() -> None:
    world = GroupWorld()
    first, second = world.client("a"), world.client("b")
    first_call = first.join()
    world.pass_time(INITIAL_DELAY_MS - 1)
    second_call = second.join()
    assert first_call.answer is None

    world.pass_time(1)
    assert first_call.answer is None, "one member has joined, so another may"
    world.pass_time(INITIAL_DELAY_MS)

    assert joined(first_call).generation == joined(second_call).generation == 1
    assert first.leads
    assert not second.leads
    assert [member.member_id for member in joined(first_call).members] == ["a-1", "b-3"]
    assert joined(second_call).members == ()


def test_the_first_rebalance_does_not_wait_longer_than_the_rebalance_timeout() -> None:
    world = GroupWorld()
    first = world.client("first").join()
    for index in range(REBALANCE_TIMEOUT_MS // 1000):
        assert first.answer is None
        world.client(f"more-{index}").join()
        world.pass_time(1000)
    assert joined(first).error_code == ErrorCode.NONE


def test_the_assignment_is_written_before_it_is_given() -> None:
    world = GroupWorld()
    leader, follower = world.client("a"), world.client("b")
    leader.join(), follower.join()
    world.pass_time(2 * INITIAL_DELAY_MS)
    waiting = follower.sync()
    assert waiting.answer is None
    assert world.stored is None

    leader.sync({leader.member_id: b"0", follower.member_id: b"1"})

    assert synced(waiting).assignment == b"1"
    assert world.stored is not None
    assert world.stored.generation == 1
    assert [bytes(each.assignment) for each in world.stored.members] == [b"0", b"1"]
    assert world.stored.leader == leader.member_id


def test_whom_the_leader_leaves_out_gets_an_empty_assignment() -> None:
    world = GroupWorld()
    leader, follower = world.client("a"), world.client("b")
    leader.join(), follower.join()
    world.pass_time(2 * INITIAL_DELAY_MS)
    leader.sync({leader.member_id: b"0", "stranger": b"1"})
    assert synced(follower.sync()).assignment == b""


# Protocols.


def test_the_protocol_that_most_prefer_of_those_that_all_support_wins() -> None:
    world = GroupWorld()
    world.stabilize(
        world.client("a", protocols=("sticky", "range", "robin")),
        world.client("b", protocols=("robin", "range")),
        world.client("c", protocols=("range", "robin")),
    )
    assert world.group.protocol_name == "range"


@pytest.mark.parametrize(
    "settings",
    [{"protocols": ("robin",)}, {"protocol_type": "connect"}, {"protocols": ()}],
    ids=["other_protocol", "other_type", "none"],
)
def test_a_member_that_does_not_fit_in_is_refused(settings: dict[str, object]) -> None:
    world, _ = stable_group("a")
    answer = joined(world.client("b", **settings).join())
    assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.group.state is GroupState.STABLE


def test_an_empty_group_takes_any_protocol() -> None:
    world, (client,) = stable_group("a")
    client.leave()
    world.stabilize(world.client("b", protocol_type="connect", protocols=("default",)))
    assert world.group.roster.protocol_type == "connect"


# Rebalances.


def test_a_member_that_joins_makes_the_others_join_again() -> None:
    world, (first,) = stable_group("a")
    call = world.client("b").join()

    assert first.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert synced(first.sync()).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert call.answer is None
    first.join()

    assert joined(call).generation == 2
    assert world.group.state is GroupState.COMPLETING_REBALANCE


def test_who_does_not_join_again_in_time_is_out() -> None:
    world, (first, second) = stable_group("a", "b")
    call = world.client("c").join()
    second.join()
    for _ in range(REBALANCE_TIMEOUT_MS // 1_000):
        assert first.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
        assert call.answer is None
        world.pass_time(1_000)

    assert joined(call).error_code == ErrorCode.NONE
    assert first.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert second.leads, "the leader did not rejoin, so another member leads"
    assert len(world.group.roster) == 2


def test_a_waiting_sync_ends_when_another_rebalance_begins() -> None:
    world, (first, second) = stable_group("a", "b")
    first.join()
    second.join()
    waiting = second.sync()
    world.client("c").join()
    assert synced(waiting).error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_who_never_asks_for_its_assignment_is_out() -> None:
    world, (first, second) = stable_group("a", "b")
    first.join()
    second.join()
    waiting = second.sync()
    for _ in range(REBALANCE_TIMEOUT_MS // 1_000):
        assert waiting.answer is None
        assert first.heartbeat() == ErrorCode.NONE
        world.pass_time(1_000)

    assert synced(waiting).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert first.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_follower_that_joins_again_unchanged_is_told_what_it_knows() -> None:
    world, (_, follower) = stable_group("a", "b")
    answer = joined(follower.join())
    assert (answer.generation, answer.members) == (1, ())
    assert world.group.state is GroupState.STABLE


@pytest.mark.parametrize("who", ["leader", "changed"])
def test_a_leader_that_joins_again_or_a_member_that_has_changed_rebalances(who: str) -> None:
    world, (leader, follower) = stable_group("a", "b")
    follower.metadata = b"other topics"
    (leader if who == "leader" else follower).join()
    assert world.group.state is GroupState.PREPARING_REBALANCE


def test_a_join_that_is_sent_again_ends_the_one_before() -> None:
    _world, (first, second) = stable_group("a", "b")
    before = first.join()
    again = first.join()
    assert joined(before).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    second.join()
    assert joined(again).error_code == ErrorCode.NONE


def test_a_sync_that_is_sent_again_ends_the_one_before() -> None:
    _, (first, second) = stable_group("a", "b")
    first.join()
    second.join()
    before = second.sync()
    again = second.sync()
    assert synced(before).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    first.sync()
    assert synced(again).error_code == ErrorCode.NONE


def test_who_owed_a_sync_in_the_generation_before_may_join_the_next_one() -> None:
    world, (first, second) = stable_group("a", "b", session_timeout_ms=100_000)
    first.join()
    second.join()
    world.pass_time(REBALANCE_TIMEOUT_MS - 1)
    world.client("c").join()
    waiting = first.join()
    world.pass_time(1)
    assert waiting.answer is None
    second.join()
    assert joined(waiting).generation == 3


# Leaving and falling silent.


def test_the_others_share_the_work_of_who_leaves() -> None:
    _world, (first, second) = stable_group("a", "b")
    assert first.leave() == (ErrorCode.NONE,)
    assert second.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    second.join()
    assert second.leads
    assert second.generation == 2


def test_a_group_that_everybody_has_left_is_empty_and_that_is_written() -> None:
    world, (client,) = stable_group("a")
    client.leave()
    assert world.group.state is GroupState.EMPTY
    assert world.stored is not None
    assert (world.stored.members, world.stored.generation) == ((), 2)
    assert world.stored.protocol_type == "consumer"


def test_who_falls_silent_is_out() -> None:
    world, (first, second) = stable_group("a", "b")
    world.pass_time(SESSION_TIMEOUT_MS - 1)
    assert second.heartbeat() == ErrorCode.NONE
    world.pass_time(1)
    assert second.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert first.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_who_waits_for_us_has_not_fallen_silent() -> None:
    world, (first, second) = stable_group("a", "b")
    waiting = first.join()
    for _ in range(REBALANCE_TIMEOUT_MS // 1_000 - 1):
        second.heartbeat()
        world.pass_time(1_000)
    second.join()
    assert joined(waiting).error_code == ErrorCode.NONE


def test_who_was_given_an_id_and_does_not_come_is_not_waited_for_longer_than_its_session() -> None:
    world, (first,) = stable_group("a", rebalance_timeout_ms=300_000)
    world.client("b")._join()
    waiting = first.join()
    world.pass_time(SESSION_TIMEOUT_MS)
    assert joined(waiting).generation == 2
    assert not world.group.roster.pending


def test_who_has_left_before_the_first_generation_leaves_nothing_behind() -> None:
    world = GroupWorld()
    client = world.client("a")
    client.join()
    client.leave()
    world.pass_time(INITIAL_DELAY_MS)
    assert world.group.state is GroupState.EMPTY
    assert world.records_count == 0


def test_a_new_member_whose_client_is_gone_is_removed() -> None:
    world, (first,) = stable_group("a", rebalance_timeout_ms=10 * NEW_MEMBER_JOIN_TIMEOUT_MS)
    waiting = world.client("b", knows_its_id=True).join()
    for _ in range(NEW_MEMBER_JOIN_TIMEOUT_MS // 5_000):
        first.heartbeat()
        world.pass_time(5_000)
    assert joined(waiting).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert len(world.group.roster) == 1


def test_several_leave_at_once_and_each_is_answered() -> None:
    world, (first, second) = stable_group("a", "b")
    codes = world.leave(Leave(member_id=first.member_id), Leave(member_id="stranger"))
    assert codes == (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID)
    assert second.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS


# Lies.


def test_another_generation_than_the_groups_is_refused() -> None:
    world, (client,) = stable_group("a")
    client.generation += 1
    assert client.heartbeat() == ErrorCode.ILLEGAL_GENERATION
    assert synced(client.sync()).error_code == ErrorCode.ILLEGAL_GENERATION
    assert world.group.state is GroupState.STABLE


def test_a_follower_cannot_assign() -> None:
    _world, (first, second) = stable_group("a", "b")
    first.join()
    second.join()
    waiting = second.sync({second.member_id: b"everything"})
    assert waiting.answer is None
    first.sync({second.member_id: b"little"})
    assert synced(waiting).assignment == b"little"


@pytest.mark.parametrize("instance_id", [None, "instance"])
def test_a_stranger_is_unknown(instance_id: str | None) -> None:
    world, _ = stable_group("a")
    stranger = world.client("b", member_id="stranger", instance_id=instance_id)
    assert joined(stranger._join()).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    stranger.member_id = "stranger"
    assert stranger.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert synced(stranger.sync()).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.leave() == (ErrorCode.UNKNOWN_MEMBER_ID,)


def test_a_group_takes_no_more_members_than_group_max_size() -> None:
    world = GroupWorld(size_max=2)
    world.stabilize(world.client("a"), world.client("b"))
    answer = joined(world.client("c").join())
    assert answer.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert world.group.state is GroupState.STABLE


# Static members.


def test_a_static_member_that_comes_back_gets_its_assignment_without_a_rebalance() -> None:
    world, (_, second) = stable_group("a", "b")
    static = world.client("s", instance_id="s")
    static.join()
    world.clients[0].join()
    second.join()
    for client in (second, static, world.clients[0]):
        client.sync(world.assignment_of(client))
    before = static.synced

    back = world.client("s", instance_id="s")
    answer = joined(back.join())

    assert answer.error_code == ErrorCode.NONE
    assert answer.generation == world.group.generation == 2
    assert back.member_id != static.member_id
    assert synced(back.sync()).assignment == (before and before.assignment)
    assert world.group.state is GroupState.STABLE
    assert world.stored is not None
    assert back.member_id in {each.member_id for each in world.stored.members}
    assert static.heartbeat() == ErrorCode.FENCED_INSTANCE_ID
    assert static.leave() == (ErrorCode.FENCED_INSTANCE_ID,)


@pytest.mark.parametrize("can_skip", [True, False])
def test_a_static_leader_that_comes_back_assigns_nothing(can_skip: bool) -> None:
    world, (before,) = stable_group("s", instance_id="s")
    back = world.client("s", instance_id="s", can_skip_assignment=can_skip)
    answer = joined(back.join())
    assert answer.skip_assignment == can_skip
    assert answer.leader_id == (back.member_id if can_skip else before.member_id)
    assert bool(answer.members) == can_skip


def test_a_static_member_that_comes_back_with_another_protocol_rebalances() -> None:
    world = GroupWorld()
    static = world.client("s", instance_id="s", protocols=("range", "robin"))
    world.stabilize(static)
    back = world.client("s", instance_id="s", protocols=("robin", "range"))
    answer = joined(back.join())
    assert (answer.generation, answer.protocol_name) == (2, "robin")


def test_what_a_static_member_waited_for_ends_when_it_is_replaced() -> None:
    world, (_first, _second) = stable_group("a", "b")
    static = world.client("s", instance_id="s")
    waiting = static.join()
    world.client("s", instance_id="s").join()
    assert joined(waiting).error_code == ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_may_be_away_during_a_rebalance() -> None:
    world = GroupWorld()
    static = world.client("s", instance_id="s", session_timeout_ms=100_000)
    other = world.client("a")
    world.stabilize(static, other)
    world.client("b").join()
    other.join()
    world.pass_time(REBALANCE_TIMEOUT_MS)
    assert static.member_id in {member.member_id for member in world.group.roster}
    assert other.leads


def test_an_operator_sends_a_static_member_away_by_its_name() -> None:
    world, (static,) = stable_group("s", instance_id="s")
    assert world.leave(Leave(member_id="", instance_id="t")) == (ErrorCode.UNKNOWN_MEMBER_ID,)
    assert world.leave(Leave(member_id="", instance_id="s")) == (ErrorCode.NONE,)
    assert static.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


# Restarts.


def test_members_go_on_after_a_restart_without_a_rebalance() -> None:
    world, (first, second) = stable_group("a", "b")
    world.restart()
    assert first.heartbeat() == second.heartbeat() == ErrorCode.NONE
    assert synced(second.sync()).assignment == (second.synced and second.synced.assignment)
    world.pass_time(SESSION_TIMEOUT_MS)
    assert world.group.state is GroupState.EMPTY


def test_an_empty_group_keeps_its_generation_over_a_restart() -> None:
    world, (client,) = stable_group("a")
    client.leave()
    since_ms = world.now_ms
    world.pass_time(5_000)
    world.restart()
    assert world.group.state is GroupState.EMPTY
    assert world.group.state_since_ms == since_ms
    world.stabilize(world.client("b"))
    assert world.group.generation == 3


def test_who_waits_hears_it_when_the_group_is_given_up() -> None:
    world, (first, _) = stable_group("a", "b")
    waiting = first.join()
    world.owed(world.group.abandon(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    assert joined(waiting).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


# The operator's log.


def test_it_is_said_why_a_group_rebalances_and_what_comes_of_it() -> None:
    world, (first, second) = stable_group("a", "b")
    begun = ["rebalances after generation 0: a-1 joins", "begins generation 1: 2 members, range"]
    assert world.notes == begun
    world.notes.clear()

    world.leave(Leave(member_id=second.member_id, reason="the consumer is being closed"))
    first.join()
    world.pass_time(REBALANCE_TIMEOUT_MS)

    assert world.notes == [
        "rebalances after generation 1: b-3 left (the consumer is being closed)",
        "begins generation 2: 1 member, range",
        "rebalances after generation 2: a-1 timed out",
        "is empty",
    ]


# Boundaries that mutants of the guards survived.


def asked(world: GroupWorld, client: GroupClient, **fields: object) -> Synced:
    """Send a SyncGroup with these fields, in the client's generation unless they say otherwise."""
    settings: dict[str, object] = {
        "member_id": client.member_id,
        "generation": client.generation,
        "assignments": {},
    }
    call = world.call(client)
    sync = Sync(**settings | fields)  # type: ignore[arg-type]
    world.owed(world.group.sync(sync, call, now_ms=world.now_ms))
    return synced(call)


@pytest.mark.parametrize("difference", [-1, 1])
def test_a_sync_of_another_generation_is_refused(difference: int) -> None:
    world, (client,) = stable_group("a")
    answer = asked(world, client, generation=client.generation + difference)
    assert answer.error_code == ErrorCode.ILLEGAL_GENERATION


@pytest.mark.parametrize("difference", [-1, 1])
def test_a_heartbeat_of_another_generation_is_refused(difference: int) -> None:
    _, (client,) = stable_group("a")
    client.generation += difference
    assert client.heartbeat() == ErrorCode.ILLEGAL_GENERATION


def test_a_sync_that_names_another_protocol_is_refused() -> None:
    world, (client,) = stable_group("a")
    answer = asked(world, client, protocol_name="another")
    assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("names", ["ab", "ba"])
def test_only_the_leader_starts_a_rebalance_by_joining_again(names: str) -> None:
    world, (leader, follower) = stable_group(*names)
    states = []
    for client in (follower, leader):
        client.join()
        states.append(world.group.state)
    assert states == [GroupState.STABLE, GroupState.PREPARING_REBALANCE]


def test_below_a_lowered_limit_no_new_member_joins() -> None:
    world, _ = stable_group("a", "b", "c")
    world.group.settings = replace(world.settings, size_max=2)
    newcomer = world.client("d", knows_its_id=True)
    assert joined(newcomer._join()).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_after_a_lowered_limit_the_members_that_rejoin_last_have_to_go() -> None:
    world, (first, second, third) = stable_group("a", "b", "c")
    world.group.settings = replace(world.settings, size_max=2)
    first.join(), second.join()
    # Its JoinGroup is repeated: it waits already.
    assert second._join().answer is None
    assert joined(third._join()).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert world.group.state is GroupState.COMPLETING_REBALANCE
