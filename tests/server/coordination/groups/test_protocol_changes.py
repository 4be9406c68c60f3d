"""A group with members changes its protocol, and back: members keep their work, and nobody is lost."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path

import pytest

from protocol.internal_topics.consumer_protocol import (
    Assignment,
    Subscription,
    TopicPartitions,
    decode_assignment,
    write,
)
from protocol.wire.error_codes import ErrorCode
from server.coordination.groups.classic.group import Group, GroupState
from server.coordination.groups.consumer.mixed_group import MixedGroup
from server.coordination.groups.events import Beat, Join, MemberProtocol, Sync
from server.coordination.groups.outcome import HeartbeatAnswer, Joined
from server.runtime.turns import Pace
from tests.harness.group_requests import AT_ONCE
from tests.harness.served_broker import ServedBroker, serving_broker

HEARTBEAT = Beat(
    member_id="m", member_epoch=0, rebalance_timeout_ms=10_000, topic_names=("t",), owned={}
)


def join_of(member_id: str = "", *owned: int, protocol_type: str = "consumer") -> Join:
    parts = (TopicPartitions(topic="t", partitions=owned),) if owned else ()
    subscription = write(Subscription(topics=("t",), owned_partitions=parts))
    return Join(
        member_id=member_id,
        new_member_id="c",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type=protocol_type,
        protocols=(MemberProtocol("range", subscription),),
    )


def all_of(count: int, user_data: bytes | None = None) -> bytes:
    parts = TopicPartitions(topic="t", partitions=tuple(range(count)))
    return write(Assignment(assigned_partitions=(parts,), user_data=user_data))


async def joined(served: ServedBroker, join: Join) -> Joined:
    return await asyncio.wait_for(await served.broker.groups.join("g", join), 10)


async def beaten(served: ServedBroker, beat: Beat) -> HeartbeatAnswer:
    pace = Pace(served.broker.turns)
    return await (await served.broker.consumer_groups.heartbeat("g", beat, pace))


async def synced(served: ServedBroker, generation: int, assignment: bytes = b"") -> list[int]:
    """Returns the partitions that the classic member is assigned."""
    sync = Sync(member_id="c", generation=generation, assignments={"c": assignment})
    answer = await served.broker.groups.sync("g", sync)
    assert answer.error_code == ErrorCode.NONE, answer
    parts = decode_assignment(answer.assignment).assigned_partitions
    return [number for each in parts for number in each.partitions]


async def begin(served: ServedBroker) -> int:
    """A group of one classic member, that has both partitions; its generation."""
    await served.create("t", 2)
    answer = await joined(served, join_of())
    assert await synced(served, answer.generation, all_of(2)) == [0, 1]
    return answer.generation


def group_of(served: ServedBroker) -> Group | MixedGroup:
    group = served.broker.groups.describe("g")
    assert isinstance(group, Group | MixedGroup)
    return group


async def test_a_group_is_upgraded_and_downgraded_and_its_members_go_on(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, **AT_ONCE) as served:
        groups = served.broker.groups
        generation = await begin(served)

        first = await beaten(served, HEARTBEAT)
        assert first.error_code == ErrorCode.NONE
        assert first.assignment == {}, "the other one has all of it"
        assert isinstance(group_of(served), MixedGroup)
        assert groups.heartbeat("g", "c", None, generation) == ErrorCode.REBALANCE_IN_PROGRESS
        again = await joined(served, join_of("c", 0, 1))
        (kept,) = await synced(served, again.generation)
        last = await joined(served, join_of("c", kept))
        assert await synced(served, last.generation) == [kept]
        lives = Beat(member_id="m", member_epoch=first.member_epoch, owned={})
        assigned = (await beaten(served, lives)).assignment
        assert assigned is not None
        assert [sorted(each) for each in assigned.values()] == [[1 - kept]]

        left = await beaten(served, Beat(member_id="m", member_epoch=-1))
        assert left.error_code == ErrorCode.NONE
        group = group_of(served)
        assert isinstance(group, Group)
        assert group.state is GroupState.PREPARING_REBALANCE
        generation = group.generation
        assert groups.heartbeat("g", "c", None, generation) == ErrorCode.REBALANCE_IN_PROGRESS
        back = await joined(served, join_of("c", kept))
        assert back.leader_id == "c"
        assert await synced(served, back.generation, all_of(2)) == [0, 1]


async def test_an_upgraded_group_is_there_after_a_restart(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, **AT_ONCE) as served:
        generation = await begin(served)
        await beaten(served, HEARTBEAT)

    async with serving_broker(tmp_path, **AT_ONCE) as served:
        await served.broker.groups.table.loads.loaded()
        group = group_of(served)
        assert isinstance(group, MixedGroup)
        assert group.data.members.keys() == {"c", "m"}
        code = served.broker.groups.heartbeat("g", "c", None, generation)
        assert code == ErrorCode.REBALANCE_IN_PROGRESS


async def test_a_downgraded_group_is_there_after_a_restart(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, **AT_ONCE) as served:
        await begin(served)
        await beaten(served, HEARTBEAT)
        await beaten(served, Beat(member_id="m", member_epoch=-1))

    async with serving_broker(tmp_path, **AT_ONCE) as served:
        await served.broker.groups.table.loads.loaded()
        group = group_of(served)
        assert isinstance(group, Group)
        assert group.roster.get("c") is not None


async def test_who_waits_for_the_leader_is_told_to_join_again(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, **AT_ONCE) as served:
        await begin(served)
        groups = served.broker.groups
        waiting = await groups.join("g", dataclasses.replace(join_of(), new_member_id="d"))

        await beaten(served, HEARTBEAT)

        assert (await waiting).error_code == ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
async def test_no_group_is_upgraded_where_the_policy_says_no(tmp_path: Path, policy: str) -> None:
    properties = {**AT_ONCE, "group_consumer_migration_policy": policy}
    async with serving_broker(tmp_path, **properties) as served:
        await begin(served)

        refused = await beaten(served, HEARTBEAT)

        assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert (refused.message or "").endswith("because online upgrade is disabled.")
        assert isinstance(group_of(served), Group)


@pytest.mark.parametrize("policy", ["disabled", "upgrade"])
async def test_no_group_is_downgraded_where_the_policy_says_no(tmp_path: Path, policy: str) -> None:
    properties = {**AT_ONCE, "group_consumer_migration_policy": policy}
    async with serving_broker(tmp_path, **properties) as served:
        await served.create("t", 2)
        await beaten(served, HEARTBEAT)
        assert (await joined(served, join_of())).error_code == ErrorCode.NONE

        await beaten(served, Beat(member_id="m", member_epoch=-1))

        assert isinstance(group_of(served), MixedGroup)


async def test_a_group_that_is_no_consumers_is_not_upgraded(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, **AT_ONCE) as served:
        await joined(served, join_of(protocol_type="connect"))

        refused = await beaten(served, HEARTBEAT)

        assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert "does not use the consumer embedded protocol" in (refused.message or "")


async def test_a_group_with_an_assignor_of_its_own_is_not_upgraded(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, **AT_ONCE) as served:
        await served.create("t", 2)
        answer = await joined(served, join_of())
        await synced(served, answer.generation, all_of(2, b"mine"))

        refused = await beaten(served, HEARTBEAT)

        assert "an unsupported custom assignor is in use" in (refused.message or "")
