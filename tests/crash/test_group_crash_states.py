"""Stop a broker at every operation of its disk while a group rebalances, and read the group back.

Members come and go, the group becomes empty, is deleted and begins anew, cleaning passes compact what
is written of it. After every crash the group is as the last answer said that it is, or as the step that
was under way leaves it: whoever heard an assignment still has it.

KOMPAKT_CRASH_STATES sets how many states are tried: one for 50 of the log's own.
KOMPAKT_CRASH_SEED is where the seeds begin.
"""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass
from random import Random

import pytest

from protocol.error_codes import ErrorCode
from protocol.group_records import GroupMetadataValue
from protocol.schema import copied
from server.groups.coordinator import GroupCoordinator
from server.groups.events import Join, Leave, Sync
from server.groups.group import GroupSettings
from server.groups.group_table import GroupTable
from server.groups.loading import load_partition
from server.groups.member import MemberProtocol
from storage.log import PartitionLog
from tests.harness.memory_fs import Loss, MemoryFileSystem
from tests.harness.offsets_disk import SyncAtOnce, compact, topic_of
from tests.harness.topics_world import FixedClock, open_world

STATES = int(os.environ.get("KOMPAKT_CRASH_STATES", "25000")) // 50
SEED = int(os.environ.get("KOMPAKT_CRASH_SEED", "1"))
STEPS, STATES_EACH = 30, 100
GROUP, MEMBERS_MAX = "group", 3

Told = tuple[int, dict[str, bytes]] | None
"""A group's generation and its assignment by member; None: there is no such group."""


@dataclass(frozen=True, slots=True)
class CrashState:
    """A disk after a crash, and what the group may be on it: as before, or as after the step."""

    disk: MemoryFileSystem
    before: Told
    after: Told
    what: str


class GroupOnDisk:
    """A coordinator over a disk, and what it has told of its one group."""

    def __init__(self, groups: GroupCoordinator) -> None:
        self.groups = groups
        self.told: Told = None
        self.will_tell: Told = None
        self.members: list[str] = []
        self._count = 0

    @property
    def is_nothing(self) -> bool:
        return not self.members and self.told is None

    async def comes(self) -> None:
        """A member more: everybody joins, and the leader gives each its work."""
        self._count += 1
        await self._rebalance(f"member-{self._count}")

    async def goes(self, member: str) -> None:
        """A member less; the others share its work."""
        self.members.remove(member)
        if not self.members and self.told is not None:
            self.will_tell = (self.told[0] + 1, {})
        left = self.groups.leave(GROUP, [Leave(member_id=member)])
        assert not isinstance(left, ErrorCode)
        assert (await left).error_codes == (ErrorCode.NONE,)
        self.told = self.will_tell
        if self.members:
            await self._rebalance(None)

    async def is_deleted(self) -> None:
        self.will_tell = None
        assert await self.groups.delete(GROUP) == ErrorCode.NONE
        self.told = None

    async def _rebalance(self, newcomer: str | None) -> None:
        joining = [await self.groups.join(GROUP, join_of("", newcomer))] if newcomer else []
        joining += [await self.groups.join(GROUP, join_of(each, "")) for each in self.members]
        self.members += [newcomer] if newcomer else []
        joined = await asyncio.gather(*joining)
        (leader,) = [each for each in joined if each.members]
        work = {each: f"{each}@{leader.generation}".encode() for each in self.members}
        self.will_tell = (leader.generation, work)
        others = [each for each in self.members if each != leader.member_id]
        waiting = [self.groups.sync(GROUP, sync_of(each, leader.generation, {})) for each in others]
        waiting.append(self.groups.sync(GROUP, sync_of(leader.member_id, leader.generation, work)))
        for member, synced in zip(
            [*others, leader.member_id], await asyncio.gather(*waiting), strict=True
        ):
            assert synced.error_code == ErrorCode.NONE, synced
            assert synced.assignment == work[member]
        self.told = self.will_tell


def join_of(member_id: str, new_member_id: str | None) -> Join:
    return Join(
        member_id=member_id,
        new_member_id=new_member_id or "",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=(MemberProtocol("range", member_id.encode()),),
    )


def sync_of(member: str, generation: int, assignments: dict[str, bytes]) -> Sync:
    return Sync(member_id=member, generation=generation, assignments=assignments)


async def found_on(disk: MemoryFileSystem) -> Told:
    """What a start reads back."""
    world = await open_world(disk, "/a")
    topic = topic_of(world)
    records = (await load_partition(topic, 0)).records if topic.partitions_count else ()
    await world.store.close()
    for record in records:
        assert isinstance(record.value, GroupMetadataValue)
        members = {each.member_id: copied(each.assignment) for each in record.value.members}
        return record.value.generation, members
    return None


async def history(seed: int) -> list[CrashState]:
    """Play one history; every state that a crash in it may leave."""
    random, crash_random = Random(seed), Random(seed + 1_000_003)
    disk = MemoryFileSystem()
    world = await open_world(disk, "/a")
    topic = topic_of(world)
    settings = GroupSettings(initial_rebalance_delay_ms=0, size_max=MEMBERS_MAX)
    group = GroupOnDisk(GroupCoordinator(topic, GroupTable(topic, settings, FixedClock())))
    await topic.ensure()
    states: list[CrashState] = []
    what = ""

    def crash(action: str, path: str) -> None:
        for loss in (Loss.TORN, crash_random.choice(tuple(Loss))):
            left = disk.after_crash(loss, crash_random)
            text = f"{what}: {loss.name} after {action} {path}"
            states.append(CrashState(left, group.told, group.will_tell, text))

    disk.on_operation = crash
    for step in range(STEPS):
        what = "clean" if step % 12 == 11 else random.choice(("come", "come", "go", "go"))
        if what == "clean":
            compact(topic.log_of(0))
        elif (what == "come" and len(group.members) < MEMBERS_MAX) or group.is_nothing:
            await group.comes()
        elif group.members:
            await group.goes(random.choice(group.members))
        else:
            await group.is_deleted()
    disk.on_operation = None
    await group.groups.stop()
    await world.close()
    return states


async def sweep(seed: int, states_max: int) -> int:
    states = await history(seed)
    assert any("clean" in state.what for state in states), "no crash fell into a pass"
    if len(states) > states_max:
        states = Random(seed).sample(states, states_max)
    for number, state in enumerate(states):
        found = await found_on(state.disk)
        text = f"seed {seed}, state {number}: {state.what}"
        assert found in (state.before, state.after), text
    return len(states)


@pytest.mark.timeout(7200 if "KOMPAKT_SOAK" in os.environ else 300)
async def test_whoever_heard_an_assignment_still_has_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    states, seed = 0, SEED
    while states < STATES:
        states += await sweep(seed, min(STATES - states, STATES_EACH))
        seed += 1
    with capsys.disabled():
        sys.stdout.write(f"\n{states} crash states of groups, seeds {SEED} to {seed - 1}\n")


async def test_the_sweep_catches_an_assignment_that_is_given_before_it_is_synced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def careless(self: SyncAtOnce, log: PartitionLog) -> None:
        log.advance_high_watermark(log.log_end_offset)

    monkeypatch.setattr(SyncAtOnce, "appended", careless)
    with pytest.raises(AssertionError, match="seed 1"):
        await sweep(1, 200)
