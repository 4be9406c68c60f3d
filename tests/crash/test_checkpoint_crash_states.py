"""Stop a broker at every operation of its disk while it makes checkpoints of `__consumer_offsets`.

The histories are those of `test_offset_crash_states.py`, with checkpoints in between. After every crash
a start loads the last checkpoint, the new one or none, and the log after it. Each
acknowledged offset is there, as without checkpoints.
"""

from __future__ import annotations

from random import Random

import pytest

from cleaner.checkpoints.making import CheckpointOrder, make_checkpoint
from server.coordination.coordinator_topic import CoordinatorTopic
from server.coordination.groups.loading import load_partition
from storage.log.log import PartitionLog
from tests.crash.coordinator_sweep import CrashStates, Sweep
from tests.crash.test_offset_crash_states import KINDS, Told, append, found_on, step_of, told
from tests.harness.compacted_log import meter_of
from tests.harness.memory_fs import MemoryFileSystem
from tests.harness.offsets_disk import compact, topic_of
from tests.harness.offsets_model import OffsetsModel
from tests.harness.topics_world import open_world

KINDS_WITH_CHECKPOINTS = KINDS + ("checkpoint",) * 4


def make(log: PartitionLog) -> None:
    view = log.cleaning_view(as_if_rolled=True)
    order = CheckpointOrder(log=log, view=view, has_commits=True, memory_bytes=1 << 20)
    make_checkpoint(order, meter_of(log, view.generation))


async def history(seed: int) -> CrashStates[Told]:
    """Play one history; every state that a crash in it may leave."""
    random, disk = Random(seed), MemoryFileSystem()
    world = await open_world(disk, "/a")
    topic = topic_of(world)
    await topic.ensure()
    known = after = OffsetsModel()
    states = CrashStates(disk, seed, lambda: (told(known), told(after)))
    for what in states.steps(random, KINDS_WITH_CHECKPOINTS):
        if what == "clean":
            compact(topic.log_of(0))
        elif what == "checkpoint":
            make(topic.log_of(0))
        elif (event := step_of(what, random, known)) is not None:
            after = known.then(event)
            await append(topic, event)
            known = after
    await world.close()
    return states


SWEEP = Sweep(history, found_on)


async def test_no_crash_around_a_checkpoint_loses_an_acknowledged_offset(
    capsys: pytest.CaptureFixture[str],
) -> None:
    await SWEEP.run_all("offsets with checkpoints", capsys)


async def test_the_starts_of_the_sweep_load_checkpoints() -> None:
    used = 0
    for state in (await history(1)).found[::20]:
        world = await open_world(state.disk, "/a")
        topic: CoordinatorTopic = topic_of(world)
        if topic.partitions_count:
            used += (await load_partition(topic, 0)).report.checkpoint is not None
        await world.store.close()

    assert used > 0
