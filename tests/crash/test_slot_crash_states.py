"""Stop a broker at every operation of its disk while slots move and are invalidated, and read them back.

A group commits slots, commits them again without progress, stalls until they are invalidated, and starts
over; passes clean `__consumer_offsets`. After every crash the slots are those that the cleaner went by,
or those after the step under way. So a slot that holds is never lost. And one that was invalidated never
holds again: its link would copy on, although tombstones may have gone meanwhile.

`coordinator_sweep.py` has the crashes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from random import Random

import pytest

from cleaner.rules.hold import NO_HOLD
from protocol.wire.error_codes import ErrorCode
from server.coordination.groups.classic.group import GroupSettings
from server.coordination.groups.coordinator import GroupCoordinator
from server.coordination.groups.group_entry import GroupEntry
from server.coordination.groups.group_table import GroupTable
from server.coordination.groups.holds import INVALIDATED_MS, Slot, TombstoneHolds, invalidation
from server.coordination.groups.loading import load_partition
from server.coordination.groups.offset_checks import OUTSIDE
from server.coordination.groups.offset_commands import OffsetCommands
from server.runtime.executors import Executor
from server.runtime.turns import Turns
from storage.log.log import PartitionLog
from tests.crash.coordinator_sweep import CrashStates, Sweep
from tests.harness.consumer_world import CONSUMER_SETTINGS, FakeTopics
from tests.harness.memory_fs import MemoryFileSystem
from tests.harness.offsets_disk import SyncAtOnce, compact, topic_of
from tests.harness.offsets_world import commit
from tests.harness.served_broker import NOW_MS
from tests.harness.topics_world import World, append, open_world

LINK, ORDINARY = "__mirror.dr", "billing"
PARTITIONS, RECORDS = 3, 5
MAX_MS, LONG_MS = 1_000, 1 << 40
KINDS = ("move", "move", "move", "stay", "stall", "stall", "start over")

Slots = dict[int, tuple[int, int]]
"""Offset and commit time by partition."""


class MovedClock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.passed_ms = 0

    def now_ms(self) -> int:
        return NOW_MS + self.passed_ms

    def monotonic(self) -> float:
        return self.passed_ms / 1000


class SlotsOnDisk:
    """A group that holds tombstones over a disk, and the slots that the current step leads to."""

    def __init__(
        self, group: str, world: World, groups: GroupCoordinator, clock: MovedClock
    ) -> None:
        self._group, self._world, self._groups, self._clock = group, world, groups, clock
        self._offsets = OffsetCommands(
            groups,
            retention_ms=LONG_MS,
            check_interval_ms=LONG_MS,
            turns=Turns(),
            administration=world.administration,
        )
        self.after: Slots = {}

    @property
    def before(self) -> Slots:
        """The slots in memory, which the cleaner goes by."""
        # Not by `find`, which belongs to the loop.
        entry = self._groups.table._entries.get(self._group)
        found = {} if entry is None else entry.offsets.by_topic().get("t", {})
        return {at: (slot.offset, slot.commit_timestamp) for at, slot in found.items()}

    async def step(self, what: str, random: Random) -> None:
        self._clock.passed_ms += random.choice((1, MAX_MS // 2))
        if what == "stall":
            await self._stall()
        else:
            partitions = random.sample(range(PARTITIONS), random.randint(1, PARTITIONS))
            await self._commit({at: self._offset(what, at, random) for at in partitions})
        assert self.before == self.after
        self._check_holds()

    def _offset(self, what: str, partition: int, random: Random) -> int:
        before, _ = self.after.get(partition, (0, 0))
        if what == "move":
            return random.randint(min(before + 1, RECORDS), RECORDS)
        return 0 if what == "start over" else before

    async def _commit(self, offsets: dict[int, int]) -> None:
        now_ms = self._clock.now_ms()
        refused = [at for at, offset in offsets.items() if self._is_refused(at, offset)]
        self.after = self.after | {
            at: (offset, self._time_of(at, offset, now_ms))
            for at, offset in offsets.items()
            if not refused
        }
        records = [
            commit(at, offset, group=self._group, commit_timestamp=now_ms)
            for at, offset in offsets.items()
        ]
        outcome = await self._offsets.commit(self._group, OUTSIDE, records)
        assert outcome is (ErrorCode.OFFSET_OUT_OF_RANGE if refused else ErrorCode.NONE)

    def _is_refused(self, partition: int, offset: int) -> bool:
        _, time_ms = self.after.get(partition, (0, NOW_MS))
        return self._group == LINK and time_ms == INVALIDATED_MS and offset > 0

    def _time_of(self, partition: int, offset: int, now_ms: int) -> int:
        before, time_ms = self.after.get(partition, (-1, 0))
        starts_over = self._group == LINK and time_ms == INVALIDATED_MS
        return time_ms if offset == before < RECORDS and not starts_over else now_ms

    async def _stall(self) -> None:
        """Let every slot stall for too long that has more to read."""
        self._clock.passed_ms += MAX_MS
        self.after = {
            at: (offset, INVALIDATED_MS if offset < RECORDS else time_ms)
            for at, (offset, time_ms) in self.after.items()
        }
        await self._offsets.expiry.expire()

    def _check_holds(self) -> None:
        for partition, (offset, time_ms) in self.after.items():
            hold = self._groups.holds.hold_of(log_of(self._world, partition))
            assert hold.offset == (NO_HOLD.offset if time_ms == INVALIDATED_MS else offset)


def log_of(world: World, partition: int) -> PartitionLog:
    topic = world.topics.get("t")
    assert topic is not None
    log = topic.partition(partition)
    assert isinstance(log, PartitionLog)
    return log


async def written_topic(world: World) -> None:
    """Create the topic that the slots are in, with records."""
    configs = {
        "cleanup_policy": "compact",
        "compaction_hold_groups": f"__mirror.*,{ORDINARY}",
        "compaction_hold_max_ms": str(MAX_MS),
    }
    topic = await world.create("t", PARTITIONS, **configs)
    await world.topics._settling.finish()
    for partition in range(PARTITIONS):
        for _ in range(RECORDS):
            append(topic, partition=partition)
        SyncAtOnce().appended(log_of(world, partition))


async def found_on(disk: MemoryFileSystem) -> Slots:
    """What a start reads back."""
    world = await open_world(disk, "/a")
    topic = topic_of(world)
    loaded = (await load_partition(topic, 0)).offsets if topic.partitions_count else {}
    await world.close()
    return {
        at: (slot.offset, slot.commit_timestamp)
        for offsets in loaded.values()
        for at, slot in offsets.by_topic().get("t", {}).items()
    }


async def history(seed: int) -> CrashStates[Slots]:
    """Play one history of a link or an ordinary group; every state that a crash in it may leave."""
    random, disk, clock = Random(seed), MemoryFileSystem(), MovedClock()
    world = await open_world(disk, "/a")
    await written_topic(world)
    topic = topic_of(world)
    settings = GroupSettings(initial_rebalance_delay_ms=0, size_max=1)
    table = GroupTable(
        topic, settings, clock, consumer_settings=CONSUMER_SETTINGS, topics=FakeTopics()
    )
    await topic.ensure()
    holds = TombstoneHolds(table, world.readable)
    groups = GroupCoordinator(topic, table, holds, assigning=Executor("assigning", threads=1))
    slots = SlotsOnDisk((LINK, ORDINARY)[seed % 2], world, groups, clock)
    states = CrashStates(disk, seed, lambda: (slots.before, slots.after))
    for what in states.steps(random, KINDS):
        if what == "clean":
            compact(topic.log_of(0))
        else:
            await slots.step(what, random)
    assert holds.invalidated_total, "no slot was invalidated"
    # The stop of the broker writes much, but changes no slot.
    disk.on_operation = None
    await groups.stop()
    await world.close()
    return states


SWEEP = Sweep(history, found_on)


async def test_a_slot_that_holds_is_not_lost_and_one_that_was_invalidated_never_holds_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    await SWEEP.run_all("slots", capsys)


async def test_the_sweep_catches_a_slot_that_is_changed_before_it_is_synced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await SWEEP.catches_answers_before_the_sync(monkeypatch)


async def test_the_sweep_catches_an_invalidation_that_counts_before_it_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @contextmanager
    def hasty(_: TombstoneHolds, entry: GroupEntry, slots: Iterable[Slot]) -> Iterator[None]:
        for place, slot in slots:
            record = invalidation(entry.group.group_id, place, slot)
            entry.offsets.apply((record,), slot.record_offset)
        yield

    monkeypatch.setattr(TombstoneHolds, "ending", hasty)
    assert ": stall" in await SWEEP.first_wrong_state()
