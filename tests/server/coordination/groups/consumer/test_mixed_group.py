"""Members of the classic protocol in a group of the consumer protocol, by examples."""

from __future__ import annotations

import pytest

from protocol.wire.error_codes import ErrorCode
from server.coordination.groups.events import Join, MemberProtocol, Sync
from server.coordination.groups.outcome import Joined, Synced
from tests.harness.consumer_world import (
    BEAT_MS,
    REBALANCE_TIMEOUT_MS,
    SESSION_TIMEOUT_MS,
    ClassicClient,
    ConsumerClient,
    ConsumerWorld,
)


def world_of(count: int) -> ConsumerWorld:
    world = ConsumerWorld()
    world.topics.put("t", count)
    return world


def numbers(*clients: ClassicClient | ConsumerClient) -> list[int]:
    return sorted(number for client in clients for _, number in client.owned)


@pytest.mark.parametrize("is_eager", [True, False])
def test_members_of_both_protocols_share_the_partitions(is_eager: bool) -> None:
    world = world_of(4)
    classic, consumer = world.classic_client(is_eager=is_eager), world.client()
    classic.beat()
    assert numbers(classic) == [0, 1, 2, 3]

    world.settle(classic, consumer)

    assert len(classic.owned) == len(consumer.owned) == 2
    assert numbers(classic, consumer) == [0, 1, 2, 3]


def test_nobody_leads_and_the_generation_is_the_members_epoch() -> None:
    world = world_of(1)

    joined = world.classic_client().beat()

    assert (joined.leader_id, joined.members) == ("", ())
    assert (joined.protocol_type, joined.protocol_name) == ("consumer", "range")
    assert joined.generation == world.group.data.members["c0"].epoch == 2


def test_who_does_not_join_again_in_time_is_fenced() -> None:
    world = world_of(4)
    classic, consumer = world.classic_client(), world.client()
    classic.beat()
    classic.revokes_slowly = True

    for _ in range(REBALANCE_TIMEOUT_MS // BEAT_MS + 2):
        consumer.beat()
        classic.beat()
        world.pass_time(BEAT_MS)
    consumer.beat()

    assert list(world.group.data.members) == ["m1"]
    assert numbers(consumer) == [0, 1, 2, 3]


def test_who_falls_silent_is_fenced_after_the_session_that_it_has_asked_for() -> None:
    world = world_of(1)
    world.classic_client().beat()

    world.pass_time(SESSION_TIMEOUT_MS)

    assert not world.group.data.members


def test_who_was_fenced_may_join_by_its_old_id_and_owns_nothing_yet() -> None:
    # Kafka's classicGroupJoinToConsumerGroup creates a member for any id. If its answer is lost,
    # the client believes that it owns what it had, as it did while it was silent.
    world = world_of(4)
    classic, consumer = world.classic_client(), world.client()
    classic.beat()
    world.pass_time(SESSION_TIMEOUT_MS)
    consumer.beat()
    classic.subscribe("t")

    classic.beat(is_lost=True)

    members = world.group.data.members
    assert (members["c0"].assigned, numbers(consumer)) == ({}, [0, 1, 2, 3])
    assert (classic.is_unaware, numbers(classic)) == (True, [0, 1, 2, 3])
    world.settle(classic, consumer)
    assert not classic.is_unaware
    assert numbers(classic, consumer) == [0, 1, 2, 3]


def test_after_a_restart_such_a_member_goes_on() -> None:
    world = world_of(2)
    classic = world.classic_client()
    world.settle(classic, world.client())
    before = numbers(classic)

    world.restart()
    classic.beat()

    assert classic.has_joined
    assert numbers(classic) == before


def test_such_a_member_leaves() -> None:
    world = world_of(1)
    classic = world.classic_client()
    classic.beat()

    classic.leave()

    assert not world.group.data.members


def join_of(world: ConsumerWorld, **fields: object) -> Joined:
    settings: dict[str, object] = {
        "member_id": "",
        "new_member_id": "new",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "protocol_type": "consumer",
        "protocols": (MemberProtocol("range", b"\0\0\0\0\0\0\xff\xff\xff\xff"),),
    }
    join = Join(**settings | fields)  # type: ignore[arg-type]
    answer = world.answered(world.group.join(join, world, now_ms=world.now_ms))
    assert isinstance(answer, Joined)
    return answer


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"knows_its_id": False}, ErrorCode.MEMBER_ID_REQUIRED),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (
            {"protocols": (MemberProtocol("range", b"?"),)},
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ),
        (
            {"protocols": (MemberProtocol("sticky", b"\0\0\0\0\0\0\xff\xff\xff\xff"),)},
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ),
        ({"member_id": "x", "instance_id": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({}, ErrorCode.NONE),
    ],
)
def test_who_may_join(fields: dict[str, object], code: ErrorCode) -> None:
    world = world_of(1)
    world.classic_client().beat()

    assert join_of(world, **fields).error_code == code


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({}, ErrorCode.NONE),
        ({"generation": 9}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": "m1"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_name": "sticky"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_who_may_sync(fields: dict[str, object], code: ErrorCode) -> None:
    world = world_of(2)
    classic = world.classic_client()
    world.settle(classic, world.client())
    settings = {"member_id": "c0", "generation": classic.generation, "assignments": {}}
    sync = Sync(**settings | fields)  # type: ignore[arg-type]

    answer = world.answered(world.group.sync(sync, world, now_ms=world.now_ms))

    assert isinstance(answer, Synced)
    assert answer.error_code == code
