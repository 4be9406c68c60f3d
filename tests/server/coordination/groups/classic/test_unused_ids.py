"""A member id that was given out and is not used: the group does as in Apache Kafka 4.3.1.

A client that gives its id up with a LeaveGroup counts as one that leaves, and the members rebalance.
The expiry of such an id only ends the wait for it. Asked of Kafka over the wire, with the scenes of
`tests/harness/group_scenes.py`, ids of 1.5 s, and the group's state before and after:

    state              members   after LeaveGroup      after the id's expiry
    Empty              0         Empty 0               Empty 0
    PreparingRebalance 4         PreparingRebalance 4  PreparingRebalance 4
    CompletingRebalance 3        PreparingRebalance 3  CompletingRebalance 3
    Stable             3         PreparingRebalance 3  Stable 3
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from protocol.wire.error_codes import ErrorCode
from server.coordination.groups.classic.group import GroupState
from tests.harness.group_world import GroupClient, GroupWorld

UNUSED_MS = 1_500


def empty(_: GroupWorld, __: list[GroupClient]) -> None:
    """Let no member join."""


def completing(world: GroupWorld, clients: list[GroupClient]) -> None:
    world.stabilize(*clients)
    for each in clients:
        each.join()
    assert world.group.state is GroupState.COMPLETING_REBALANCE


def stable(world: GroupWorld, clients: list[GroupClient]) -> None:
    world.stabilize(*clients)


def preparing(world: GroupWorld, clients: list[GroupClient]) -> None:
    world.stabilize(*clients)
    world.client("newcomer", knows_its_id=True).join()


ANSWERS = [
    (empty, GroupState.EMPTY, GroupState.EMPTY),
    (preparing, GroupState.PREPARING_REBALANCE, GroupState.PREPARING_REBALANCE),
    (completing, GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE),
    (stable, GroupState.PREPARING_REBALANCE, GroupState.STABLE),
]


@pytest.mark.parametrize(("scene", "after_leave", "after_expiry"), ANSWERS)
@pytest.mark.parametrize("gives_up", [True, False], ids=["gives-up", "expires"])
def test_an_id_given_up_starts_a_rebalance_and_an_expired_one_does_not(
    scene: Callable[[GroupWorld, list[GroupClient]], None],
    after_leave: GroupState,
    after_expiry: GroupState,
    gives_up: bool,
) -> None:
    world = GroupWorld()
    scene(world, [world.client(name) for name in "abc"])
    members = world.group.members_count
    client = world.client("unused", session_timeout_ms=UNUSED_MS)
    client._join()
    assert list(world.group.roster.pending) == [client.member_id]

    if gives_up:
        assert client.leave() == (ErrorCode.NONE,)
    else:
        world.pass_time(UNUSED_MS)

    assert not world.group.roster.pending
    assert world.group.state is (after_leave if gives_up else after_expiry)
    assert world.group.members_count == members
