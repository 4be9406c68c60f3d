"""Stop a broker at every operation of its disk while groups commit, and read the offsets back.

Commits, deletions, transactions and cleaning passes of `__consumer_offsets` are played over a disk that
loses what was not synced. After every crash each offset that was acknowledged is there, or one that was
committed after it: none is lost and none goes back; none of an open or aborted transaction holds. What
was under way is whole or absent, a batch at a time. `coordinator_sweep.py` has the crashes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import cast

import pytest

from server.coordination.coordinator_topic import CoordinatorTopic
from server.coordination.groups.loading import load_partition
from server.coordination.producer import Producer
from server.durability.group_commit import GroupCommit
from storage.log.log import PartitionLog
from tests.crash.coordinator_sweep import CrashStates, Sweep
from tests.harness.memory_fs import MemoryFileSystem
from tests.harness.offsets_disk import SyncAtOnce, compact, topic_of
from tests.harness.offsets_model import Commit, Event, Marker, OffsetsModel, Place, Tombstones
from tests.harness.offsets_world import commit, tombstones, write_marker
from tests.harness.topics_world import open_world

GROUPS, PARTITIONS = ("a", "b", "c"), 4
PRODUCERS = (1000, 1001)
KINDS = ("commit",) * 5 + ("delete",) + ("transaction",) * 4 + ("end",) * 2
PASSES: dict[str, Callable[[PartitionLog], None]] = {"clean": compact}

Told = tuple[dict[Place, int], set[Place]]
"""Where in the log what holds stands, and what an open transaction may change."""


async def found_on(disk: MemoryFileSystem) -> Told:
    """What a start reads back."""
    world = await open_world(disk, "/a")
    topic = topic_of(world)
    held: dict[Place, int] = {}
    unstable: set[Place] = set()
    if topic.partitions_count:
        for group, offsets in (await load_partition(topic, 0)).offsets.items():
            for name, partition in offsets.places():
                committed = offsets.get(name, partition)
                if committed is not None:
                    held[group, partition] = committed.record_offset
                if offsets.is_unstable(name, partition):
                    unstable.add((group, partition))
    await world.stores.close()
    return held, unstable


async def history(
    seed: int,
    kinds: tuple[str, ...] = KINDS,
    passes: Mapping[str, Callable[[PartitionLog], None]] = PASSES,
) -> CrashStates[Told]:
    """Play one history; every state that a crash in it may leave.

    Args:
        kinds: what may happen, as often as it is named.
        passes: those of them that only rewrite what is there.
    """
    random, disk = Random(seed), MemoryFileSystem()
    world = await open_world(disk, "/a")
    topic = topic_of(world)
    await topic.ensure()
    known = after = OffsetsModel()
    states = CrashStates(disk, seed, lambda: (told(known), told(after)))
    for what in states.steps(random, kinds):
        if what in passes:
            passes[what](topic.log_of(0))
        elif (event := step_of(what, random, known)) is not None:
            after = known.then(event)
            await append(topic, event)
            known = after
    await world.close()
    return states


def told(model: OffsetsModel) -> Told:
    return model.held(), model.unstable()


def step_of(what: str, random: Random, known: OffsetsModel) -> Event | None:
    if what == "end":
        return Marker(random.choice(PRODUCERS), is_commit=random.random() < 0.6)
    group = random.choice(GROUPS)
    if what == "delete":
        places = sorted({*known.held(), *known.unstable()})
        partitions = tuple(partition for owner, partition in places if owner == group)
        return Tombstones(group, partitions) if partitions else None
    partitions = tuple(random.sample(range(PARTITIONS), random.randrange(1, PARTITIONS)))
    return Commit(group, partitions, random.choice(PRODUCERS) if what == "transaction" else None)


async def append(topic: CoordinatorTopic, event: Event) -> None:
    """Write what an event is, and wait until it is durable."""
    match event:
        case Tombstones():
            await topic.append(0, tombstones(event.group, [("t", p) for p in event.partitions]))
        case Marker():
            syncs = cast("GroupCommit", SyncAtOnce())
            producer = Producer(event.producer_id, 0)
            await write_marker(topic.log_of(0), syncs, producer, is_commit=event.is_commit)
        case Commit():
            records = [commit(partition, group=event.group) for partition in event.partitions]
            if event.producer_id is None:
                await topic.append(0, records)
            else:
                producer = Producer(event.producer_id, 0)
                await topic.append_in_transaction(0, records, producer)[1]


SWEEP = Sweep(history, found_on)


async def test_no_acknowledged_offset_is_lost_or_goes_back(
    capsys: pytest.CaptureFixture[str],
) -> None:
    await SWEEP.run_all("offsets", capsys)


async def test_the_sweep_catches_a_commit_that_is_acknowledged_before_it_is_synced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await SWEEP.catches_answers_before_the_sync(monkeypatch)
