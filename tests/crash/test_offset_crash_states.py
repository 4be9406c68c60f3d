"""Stop a broker at every operation of its disk while groups commit, and read the offsets back.

Commits, deletions and cleaning passes of `__consumer_offsets` are played over a disk that loses what was
not synced. After every crash each offset that was acknowledged is there, or one that was committed after
it: none is lost and none goes back. What was under way is whole or absent, a batch at a time.

KOMPAKT_CRASH_STATES sets how many states are tried: one for 50 of the log's own, which take less time.
KOMPAKT_CRASH_SEED is where the seeds begin.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from random import Random

import pytest

from protocol.group_records import GroupRecord, OffsetCommitKey, OffsetCommitValue
from server.groups.loading import load_partition
from storage.log import PartitionLog
from tests.harness.memory_fs import Loss, MemoryFileSystem
from tests.harness.offsets_disk import SyncAtOnce, compact, topic_of
from tests.harness.offsets_world import commit, tombstones
from tests.harness.topics_world import open_world

STATES = int(os.environ.get("KOMPAKT_CRASH_STATES", "25000")) // 50
SEED = int(os.environ.get("KOMPAKT_CRASH_SEED", "1"))
STEPS, STATES_EACH = 30, 100
GROUPS, PARTITIONS = ("a", "b", "c"), 4

Offsets = dict[tuple[str, int], int]
"""By group and partition of the one topic that they read."""


@dataclass(frozen=True, slots=True)
class CrashState:
    """A disk after a crash, and the offsets that may be on it: as before, or as after the step."""

    disk: MemoryFileSystem
    before: Offsets
    after: Offsets
    what: str


async def found_on(disk: MemoryFileSystem) -> Offsets:
    """What a start reads back."""
    world = await open_world(disk, "/a")
    topic = topic_of(world)
    found: Offsets = {}
    if topic.partitions_count:
        for group, offsets in (await load_partition(topic, 0)).offsets.items():
            for partition, committed in offsets.by_topic()["t"].items():
                found[group, partition] = committed.offset
    await world.store.close()
    return found


async def history(seed: int) -> list[CrashState]:
    """Play one history; every state that a crash in it may leave."""
    random, crash_random = Random(seed), Random(seed + 1_000_003)
    disk = MemoryFileSystem()
    world = await open_world(disk, "/a")
    topic = topic_of(world)
    await topic.ensure()
    states: list[CrashState] = []
    known: Offsets = {}
    after: Offsets = {}
    what = ""

    def crash(action: str, path: str) -> None:
        for loss in (Loss.TORN, crash_random.choice(tuple(Loss))):
            left = disk.after_crash(loss, crash_random)
            states.append(
                CrashState(
                    left, dict(known), dict(after), f"{what}: {loss.name} after {action} {path}"
                )
            )

    disk.on_operation = crash
    for step in range(STEPS):
        what = "clean" if step % 12 == 11 else random.choice(("commit",) * 5 + ("delete",))
        if what == "clean":
            compact(topic.log_of(0))
            continue
        records = step_of(what, random, step, known)
        if not records:
            continue
        after = applied(known, records)
        await topic.append(0, records)
        known = after
    await world.close()
    return states


def step_of(what: str, random: Random, step: int, known: Offsets) -> tuple[GroupRecord, ...]:
    group = random.choice(GROUPS)
    if what == "delete":
        return tombstones(group, [("t", partition) for owner, partition in known if owner == group])
    partitions = random.sample(range(PARTITIONS), random.randrange(1, PARTITIONS))
    return tuple(commit(partition, step, group=group) for partition in partitions)


def applied(known: Offsets, records: tuple[GroupRecord, ...]) -> Offsets:
    offsets = dict(known)
    for record in records:
        assert isinstance(record.key, OffsetCommitKey)
        place = (record.key.group, record.key.partition)
        offsets.pop(place, None)
        if isinstance(record.value, OffsetCommitValue):
            offsets[place] = record.value.offset
    return offsets


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
async def test_no_acknowledged_offset_is_lost_or_goes_back(
    capsys: pytest.CaptureFixture[str],
) -> None:
    states, seed = 0, SEED
    while states < STATES:
        states += await sweep(seed, min(STATES - states, STATES_EACH))
        seed += 1
    with capsys.disabled():
        sys.stdout.write(f"\n{states} crash states of offsets, seeds {SEED} to {seed - 1}\n")


async def test_the_sweep_catches_a_commit_that_is_acknowledged_before_it_is_synced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def careless(self: SyncAtOnce, log: PartitionLog) -> None:
        log.advance_high_watermark(log.log_end_offset)

    monkeypatch.setattr(SyncAtOnce, "appended", careless)
    with pytest.raises(AssertionError, match="seed 1"):
        await sweep(1, 200)
