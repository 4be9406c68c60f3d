"""The coordinator: answers to members are on disk first, and hold after a restart."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import logging
from pathlib import Path

import pytest

from protocol.wire.error_codes import ErrorCode
from server.coordination import partition_loads
from server.coordination.coordinator_topic import OFFSETS_TOPIC
from server.coordination.groups.classic.group import Group, GroupState
from server.coordination.groups.coordinator import GroupCoordinator
from server.coordination.groups.events import Join, Leave, MemberProtocol, Sync
from server.coordination.groups.group_steps import GroupSteps
from server.coordination.groups.outcome import Joined
from server.http import broker_facts
from server.runtime.tasks import raising
from server.runtime.turns import Pace, Turns
from tests.harness.faulty_fs import FaultyFileSystem
from tests.harness.served_broker import serving_broker, serving_broker_on

PROPERTIES = {"group_initial_rebalance_delay_ms": "0", "offsets_topic_num_partitions": "2"}


def join_of(member_id: str, metadata: bytes = b"topics", *, is_new: bool = True) -> Join:
    return Join(
        member_id="" if is_new else member_id,
        new_member_id=member_id,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=(MemberProtocol("range", metadata),),
    )


async def joined(groups: GroupCoordinator, group_id: str, join: Join) -> Joined:
    return await asyncio.wait_for(await groups.join(group_id, join), 10)


async def stabilize(groups: GroupCoordinator, group_id: str = "group", member: str = "m") -> None:
    """A group of one member, whose work is its own name."""
    answer = await joined(groups, group_id, join_of(member))
    assert answer.error_code == ErrorCode.NONE
    synced = await groups.sync(group_id, sync_of(member, answer.generation))
    assert synced.assignment == member.encode()


def sync_of(member: str, generation: int) -> Sync:
    assignments = {member: member.encode()}
    return Sync(member_id=member, generation=generation, assignments=assignments)


def described(groups: GroupCoordinator, group_id: str = "group") -> Group:
    group = groups.describe(group_id)
    assert isinstance(group, Group)
    return group


async def test_members_go_on_after_a_restart(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, **PROPERTIES) as served:
        await stabilize(served.broker.groups)
    async with serving_broker(tmp_path, **PROPERTIES) as served:
        groups = served.broker.groups
        await groups.table.loads.loaded()
        assert groups.heartbeat("group", "m", None, 1) == ErrorCode.NONE
        synced = await groups.sync("group", sync_of("m", 1))
        assert (synced.error_code, synced.assignment) == (ErrorCode.NONE, b"m")


async def test_until_groups_are_read_nobody_is_told_anything_false(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, **PROPERTIES) as served:
        await stabilize(served.broker.groups)
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    async with serving_broker(tmp_path, **PROPERTIES) as served:
        groups = served.broker.groups
        groups.table.loads._loading.add(groups.topic.partition_of("other"))
        await groups.table.loads.loaded()
        groups.table.loads._loading = {0, 1}
        groups.table._entries.clear()
        assert groups.heartbeat("group", "m", None, 1) == ErrorCode.NONE
        assert (await joined(groups, "group", join_of("n"))).error_code == loading
        assert (await groups.sync("group", sync_of("m", 1))).error_code == loading
        assert await groups.leave("group", [Leave(member_id="m")], Pace(Turns())) == loading
        assert groups.describe("group") == groups.groups() == loading
        assert await groups.delete("group") == loading


def flip_the_last_byte(directory: str) -> None:
    """Damage a log of one segment; a second flip mends it."""
    (path,) = Path(directory).glob("*.log")
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


async def test_a_group_that_could_not_be_read_is_served_once_its_log_is_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_loads, "RETRY_SECONDS", 0.01)
    async with serving_broker(tmp_path, **PROPERTIES) as served:
        groups = served.broker.groups
        await stabilize(groups)
        directory = groups.topic.log_of(groups.topic.partition_of("group")).directory
    flip_the_last_byte(directory)
    async with serving_broker(tmp_path, **PROPERTIES) as served:
        groups = served.broker.groups
        await groups.table.loads.loaded()
        unknown = ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert groups.heartbeat("group", "m", None, 1) == groups.describe("group") == unknown
        assert broker_facts(served.broker).coordinator_partitions[OFFSETS_TOPIC]["failed"] == 1
        flip_the_last_byte(directory)
        async with asyncio.timeout(20):
            while groups.describe("group") == unknown:  # noqa: ASYNC110 - it sets no event
                await asyncio.sleep(0.01)
        assert groups.heartbeat("group", "m", None, 1) == ErrorCode.NONE
        assert broker_facts(served.broker).coordinator_partitions[OFFSETS_TOPIC]["failed"] == 0


async def test_the_session_of_a_member_that_is_gone_ends_after_a_restart(tmp_path: Path) -> None:
    join = join_of("m")
    short = dataclasses.replace(join, session_timeout_ms=50)
    async with serving_broker(tmp_path, **PROPERTIES) as served:
        groups = served.broker.groups
        await joined(groups, "group", short)
        await groups.sync("group", sync_of("m", 1))
    async with serving_broker(tmp_path, **PROPERTIES) as served:
        groups = served.broker.groups
        await groups.table.loads.loaded()
        empty = Leave(member_id="m")
        for _ in range(1_000):
            if described(groups).state is GroupState.EMPTY:
                break
            await asyncio.sleep(0.01)
        assert await left(groups, "group", empty) == (ErrorCode.UNKNOWN_MEMBER_ID,)
        assert described(groups).generation == 2


async def test_what_cannot_be_written_is_not_told_and_the_group_is_as_it_was(
    tmp_path: Path,
) -> None:
    files = FaultyFileSystem()
    async with serving_broker_on(files, tmp_path, **PROPERTIES) as served:
        groups = served.broker.groups
        await stabilize(groups)
        waiting = await groups.join("group", join_of("n"))
        again = await joined(groups, "group", join_of("m", is_new=False))
        assert again.generation == (await waiting).generation == 2
        follower = groups.sync("group", Sync(member_id="n", generation=2, assignments={}))
        files.faults.fail("append to", errno.ENOSPC, path="__consumer_offsets")

        leader = groups.sync("group", sync_of("m", 2))

        unavailable = ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (await leader).error_code == (await follower).error_code == unavailable
        assert described(groups).generation == 1
        assert groups.heartbeat("group", "m", None, 1) == ErrorCode.NONE
        assert groups.heartbeat("group", "n", None, 2) == ErrorCode.UNKNOWN_MEMBER_ID
        files.faults.heal()
        await stabilize(groups, "other")


@pytest.mark.parametrize(
    ("group_id", "metadata_bytes"), [("group", 2 << 20), ("g" * 40_000, 1)], ids=["data", "name"]
)
async def test_what_no_record_can_hold_is_refused(
    tmp_path: Path, group_id: str, metadata_bytes: int
) -> None:
    async with serving_broker(tmp_path, **PROPERTIES) as served:
        groups = served.broker.groups
        answer = await joined(groups, group_id, join_of("m", metadata=bytes(metadata_bytes)))
        synced = await groups.sync(group_id, sync_of("m", answer.generation))
        assert synced.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert len(groups.table) == 0


async def test_a_deleted_group_is_gone_for_good(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, **PROPERTIES) as served:
        groups = served.broker.groups
        await stabilize(groups)
        assert await groups.delete("group") == ErrorCode.NON_EMPTY_GROUP
        assert await left(groups, "group", Leave(member_id="m")) == (ErrorCode.NONE,)
        assert await groups.delete("group") == ErrorCode.NONE
        assert await groups.delete("group") == ErrorCode.GROUP_ID_NOT_FOUND
    async with serving_broker(tmp_path, **PROPERTIES) as served:
        groups = served.broker.groups
        await groups.table.loads.loaded()
        assert groups.describe("group") is None


async def left(groups: GroupCoordinator, group_id: str, *leaving: Leave) -> tuple[ErrorCode, ...]:
    leave = await groups.leave(group_id, leaving, Pace(Turns()))
    assert not isinstance(leave, ErrorCode)
    return (await leave).error_codes


async def test_of_a_group_that_nobody_joined_nothing_is_kept(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, **PROPERTIES) as served:
        groups = served.broker.groups
        stranger = join_of("stranger", is_new=False)
        assert (await joined(groups, "a", stranger)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert groups.heartbeat("a", "m", None, 1) == ErrorCode.UNKNOWN_MEMBER_ID
        assert await left(groups, "a", Leave(member_id="m")) == (ErrorCode.UNKNOWN_MEMBER_ID,)
        unfit = dataclasses.replace(stranger, protocols=(), member_id="")
        answer = await joined(groups, "b", unfit)
        assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert len(groups.table) == 0


async def test_who_waits_is_answered_when_the_broker_stops(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, **PROPERTIES) as served:
        groups = served.broker.groups
        await stabilize(groups)
        waiting = await groups.join("group", join_of("n"))
    answer = await asyncio.wait_for(waiting, 30)
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_what_clients_say_cannot_forge_a_line_of_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "server.coordination.groups")
    async with serving_broker(tmp_path, **PROPERTIES) as served:
        forged = dataclasses.replace(join_of("m"), reason="bored\nCRITICAL all is lost")
        await joined(served.broker.groups, "a\nb", forged)
    assert any("bored" in message for message in caplog.messages)
    assert not any("\n" in message for message in caplog.messages)


@pytest.mark.parametrize("group_id", ["../../etc", "a/b", "\0", "ü" * 300, "x" * 10_000])
async def test_a_group_id_is_just_a_name(tmp_path: Path, group_id: str) -> None:
    async with serving_broker(tmp_path, **PROPERTIES) as served:
        await stabilize(served.broker.groups, group_id)
    async with serving_broker(tmp_path, **PROPERTIES) as served:
        groups = served.broker.groups
        await groups.table.loads.loaded()
        assert described(groups, group_id).state is GroupState.STABLE


@pytest.mark.parametrize("is_late", [False, True], ids=["at once", "later"])
async def test_a_write_that_fails_unexpectedly_is_answered_and_the_group_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_late: bool
) -> None:
    error = RuntimeError("a mistake")

    def append(*_: object) -> object:
        if is_late:
            return raising(error)
        raise error

    async with serving_broker(tmp_path, **PROPERTIES) as served:
        groups = served.broker.groups
        await stabilize(groups, member="m")
        monkeypatch.setattr(GroupSteps, "append", append)
        answer = await joined(groups, "group", join_of("m", is_new=False, metadata=b"others"))
        failed = await asyncio.wait_for(groups.sync("group", sync_of("m", answer.generation)), 10)
        assert failed.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        monkeypatch.undo()
        # Both answers come at once, not when the session of a member that is gone is over.
        waiting = await groups.join("group", join_of("n"))
        again = await joined(groups, "group", join_of("m", is_new=False))
        other = await asyncio.wait_for(waiting, 10)
        assert again.error_code == other.error_code == ErrorCode.NONE
        assert again.generation == other.generation
        synced = await asyncio.wait_for(groups.sync("group", sync_of("m", again.generation)), 10)
        assert synced.assignment == b"m"
