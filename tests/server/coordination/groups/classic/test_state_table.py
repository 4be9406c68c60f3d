"""The table of a classic group's states: complete, and reached in all its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product

import pytest

from protocol.wire.error_codes import ErrorCode
from server.coordination.groups.classic.group import GroupState
from server.coordination.groups.classic.state_table import GROUP_STATES, Action, Event
from server.coordination.groups.events import Leave, Sync
from server.coordination.groups.offset_checks import (
    OUTSIDE,
    Claim,
    commit_error,
    delete_error,
    offset_delete_error,
    transactional_commit_error,
)
from tests.harness.group_world import (
    INITIAL_DELAY_MS,
    REBALANCE_TIMEOUT_MS,
    SESSION_TIMEOUT_MS,
    GroupClient,
    GroupWorld,
)
from tests.harness.state_tables import (
    Reached,
    acting_events,
    check_actions_are_read,
    open_combinations,
    recording,
)

LONG_SESSION_MS = 10 * REBALANCE_TIMEOUT_MS
STATIC = "s"
"""The instance id of the static member."""

ADVICE = {ErrorCode.GROUP_MAX_SIZE_REACHED, ErrorCode.MEMBER_ID_REQUIRED}
"""Errors that come with a change of the group: they tell the client what to do."""

Request = Callable[[GroupWorld], object]


def test_every_combination_of_state_event_and_guard_has_exactly_one_row() -> None:
    assert open_combinations(GROUP_STATES) == []


def test_refusals_name_an_error_and_change_nothing_and_other_steps_have_none() -> None:
    for row in GROUP_STATES.rows:
        match row.action:
            case Action.REFUSE:
                assert row.error_code is not ErrorCode.NONE
            case Action.DROP | Action.RESERVE_ID:
                assert row.error_code in ADVICE
            case Action.RENEW:
                is_joining = GroupState.PREPARING_REBALANCE in row.states
                error = ErrorCode.REBALANCE_IN_PROGRESS if is_joining else ErrorCode.NONE
                assert row.error_code is error
            case _:
                assert row.error_code is ErrorCode.NONE
        if row.error_code is not ErrorCode.NONE:
            assert row.next_state is None


def test_requests_and_time_reach_every_row_and_nothing_impossible() -> None:
    with recording(GROUP_STATES) as reached:
        explore(reached)
    assert reached.missed() == []


@pytest.mark.parametrize("event", acting_events(GROUP_STATES))
def test_the_action_of_each_event_is_carried_out(event: Event) -> None:
    check_actions_are_read(GROUP_STATES, event, explore)


def explore(reached: Reached) -> None:
    """Send every request to a group in each situation, and let time pass after it."""
    for situation, protocol_type in product(SITUATIONS, ("consumer", "connect")):
        for number, _ in enumerate(requests(situation(protocol_type))):
            world = situation(protocol_type)
            ask(world, list(requests(world))[number], reached)
            for pause_ms in (INITIAL_DELAY_MS, SESSION_TIMEOUT_MS, REBALANCE_TIMEOUT_MS):
                ask(world, partial(GroupWorld.pass_time, duration_ms=pause_ms), reached)


def ask(world: GroupWorld, request: Request, reached: Reached) -> None:
    reached.steps.clear()
    request(world)
    reached.check_chain(world.group.state)


# Groups in each state.


def empty(protocol_type: str) -> GroupWorld:
    return GroupWorld()


def with_unused_id(protocol_type: str) -> GroupWorld:
    world = GroupWorld()
    member(world, "d", protocol_type)._join()
    return world


def first_rebalance(protocol_type: str) -> GroupWorld:
    """With as many members as may wait."""
    world = GroupWorld(size_max=3)
    for client in members(world, protocol_type):
        client.join()
    assert world.group.state is GroupState.PREPARING_REBALANCE
    return world


def stable(protocol_type: str) -> GroupWorld:
    world = GroupWorld(size_max=3)
    world.stabilize(*members(world, protocol_type))
    return world


def rebalancing(protocol_type: str) -> GroupWorld:
    world = stable(protocol_type)
    world.clients[0].join()
    member(world, "d", protocol_type)._join()
    assert world.group.state is GroupState.PREPARING_REBALANCE
    return world


def without_its_dynamic_members(protocol_type: str) -> GroupWorld:
    world = stable(protocol_type)
    for client in world.clients[:2]:
        client.leave()
    assert world.group.state is GroupState.PREPARING_REBALANCE
    return world


def assigning(protocol_type: str) -> GroupWorld:
    world = stable(protocol_type)
    for client in world.clients:
        client.join()
    world.clients[1].sync()
    assert world.group.state is GroupState.COMPLETING_REBALANCE
    return world


def assigned_in_part(protocol_type: str) -> GroupWorld:
    """With a follower that has not asked for its assignment."""
    world = assigning(protocol_type)
    world.clients[0].sync()
    assert world.group.state is GroupState.STABLE
    return world


def with_room(protocol_type: str) -> GroupWorld:
    world = GroupWorld()
    world.stabilize(*members(world, protocol_type))
    member(world, "d", protocol_type)._join()
    return world


def assigning_with_room(protocol_type: str) -> GroupWorld:
    world = with_room(protocol_type)
    world.group.roster.pending.clear()
    for client in world.clients[:3]:
        client.join()
    member(world, "e", protocol_type)._join()
    assert world.group.state is GroupState.COMPLETING_REBALANCE
    return world


SITUATIONS = (
    empty,
    with_unused_id,
    first_rebalance,
    stable,
    rebalancing,
    without_its_dynamic_members,
    assigning,
    assigned_in_part,
    with_room,
    assigning_with_room,
)


def members(world: GroupWorld, protocol_type: str) -> list[GroupClient]:
    """Returns a leader, a follower and a static member."""
    names = (("a", None), ("b", None), ("c", STATIC))
    return [member(world, name, protocol_type, instance_id) for name, instance_id in names]


def member(
    world: GroupWorld, name: str, protocol_type: str, instance_id: str | None = None
) -> GroupClient:
    return world.client(
        name,
        instance_id=instance_id,
        protocols=("range", "robin"),
        protocol_type=protocol_type,
        session_timeout_ms=LONG_SESSION_MS if instance_id or name < "d" else SESSION_TIMEOUT_MS,
    )


# Requests.


def requests(world: GroupWorld) -> Iterator[Request]:
    """Yields everything that members and others ask of a group."""
    yield lambda each: None
    yield from _joins(world)
    for client in (*world.clients, *_strangers(world)):
        yield from _requests_of(client)
    yield lambda each: each.leave(Leave(member_id="", instance_id=STATIC))
    yield lambda each: each.leave(*(_leave_of(client) for client in each.clients))
    yield lambda each: delete_error(each.group)
    yield lambda each: offset_delete_error(each.group)
    yield lambda each: commit_error(each.group, OUTSIDE)
    yield lambda each: transactional_commit_error(each.group, OUTSIDE)
    if world.group.state is GroupState.STABLE:
        yield lambda each: each.owed(each.group.rebalance("converted", now_ms=each.now_ms))


def _leave_of(client: GroupClient) -> Leave:
    return Leave(member_id=client.member_id, instance_id=client.instance_id)


def _joins(world: GroupWorld) -> Iterator[Request]:
    """Yields joins of new members and of a static one that returns."""
    protocol_type = "consumer"
    if world.clients:
        protocol_type = world.clients[0].protocol_type
    newcomers: tuple[dict[str, object], ...] = (
        {},
        {"knows_its_id": True},
        {"instance_id": "another"},
        {"protocols": ()},
        {"instance_id": STATIC},
        {"instance_id": STATIC, "protocols": ("robin",)},
    )
    for settings in newcomers:
        given = {"protocols": ("range",), "protocol_type": protocol_type, **settings}
        yield partial(_join_as, given)


def _join_as(settings: dict[str, object], world: GroupWorld) -> None:
    GroupClient(world, "new", **settings).join()  # type: ignore[arg-type]


def _strangers(world: GroupWorld) -> Iterator[GroupClient]:
    for instance_id in (None, STATIC):
        stranger = GroupClient(world, "stranger", instance_id=instance_id)
        if world.clients:
            stranger.protocol_type = world.clients[0].protocol_type
        stranger.member_id, stranger.generation = "stranger", world.group.generation
        yield stranger


def _requests_of(client: GroupClient) -> Iterator[Request]:
    yield lambda _: client.join()
    yield lambda _: _join_changed(client)
    yield lambda _: client.leave()
    for generation in (-1, 0, 1):
        for request in (_sync, _sync_in_another_protocol, _heartbeat, *COMMITS):
            yield partial(_request_of, request, client, generation)


def _request_of(
    request: Callable[[GroupClient, int], None], client: GroupClient, generation: int, _: GroupWorld
) -> None:
    request(client, generation)


def _join_changed(client: GroupClient) -> None:
    client.metadata = b"other topics"
    client.join()


def _sync(client: GroupClient, generation: int) -> None:
    client.generation += generation
    client.sync()


def _sync_in_another_protocol(client: GroupClient, generation: int) -> None:
    world = client.world
    sync = Sync(
        member_id=client.member_id,
        instance_id=client.instance_id,
        generation=client.generation + generation,
        protocol_type="other",
        assignments={},
    )
    world.owed(world.group.sync(sync, world.call(client), now_ms=world.now_ms))


def _heartbeat(client: GroupClient, generation: int) -> None:
    client.generation += generation
    client.heartbeat()


def _commit(client: GroupClient, generation: int) -> None:
    commit_error(client.world.group, _claim(client, generation))


def _commit_in_transaction(client: GroupClient, generation: int) -> None:
    transactional_commit_error(client.world.group, _claim(client, generation))


def _claim(client: GroupClient, generation: int) -> Claim:
    return Claim(
        member_id=client.member_id,
        instance_id=client.instance_id,
        generation=client.generation + generation,
    )


COMMITS = (_commit, _commit_in_transaction)
