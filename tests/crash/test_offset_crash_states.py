"""Stop a broker at every operation of its disk while groups commit, and read the offsets back.

Commits, deletions and cleaning passes of `__consumer_offsets` are played over a disk that loses what was
not synced. After every crash each offset that was acknowledged is there, or one that was committed after
it: none is lost and none goes back. What was under way is whole or absent, a batch at a time.
`coordinator_sweep.py` has the crashes.
"""

from __future__ import annotations

from random import Random

import pytest

from protocol.group_records import GroupRecord, OffsetCommitKey, OffsetCommitValue
from server.groups.loading import load_partition
from tests.crash.coordinator_sweep import TIMEOUT_SECONDS, CrashStates, Sweep
from tests.harness.memory_fs import MemoryFileSystem
from tests.harness.offsets_disk import compact, topic_of
from tests.harness.offsets_world import commit, tombstones
from tests.harness.topics_world import open_world

GROUPS, PARTITIONS = ("a", "b", "c"), 4

Offsets = dict[tuple[str, int], int]
"""By group and partition of the one topic that they read."""


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


async def history(seed: int) -> CrashStates[Offsets]:
    """Play one history; every state that a crash in it may leave."""
    random, disk = Random(seed), MemoryFileSystem()
    world = await open_world(disk, "/a")
    topic = topic_of(world)
    await topic.ensure()
    known: Offsets = {}
    after: Offsets = {}
    states = CrashStates(disk, seed, lambda: (known, after))
    for step, what in enumerate(states.steps(random, ("commit",) * 5 + ("delete",))):
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


SWEEP = Sweep(history, found_on)


@pytest.mark.timeout(TIMEOUT_SECONDS)
async def test_no_acknowledged_offset_is_lost_or_goes_back(
    capsys: pytest.CaptureFixture[str],
) -> None:
    await SWEEP.run_all("offsets", capsys)


async def test_the_sweep_catches_a_commit_that_is_acknowledged_before_it_is_synced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await SWEEP.catches_answers_before_the_sync(monkeypatch)
