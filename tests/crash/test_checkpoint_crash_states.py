"""Stop a broker at every operation of its disk while it makes checkpoints of `__consumer_offsets`.

The histories are those of `test_offset_crash_states.py`, with checkpoints in between. After every crash
a start loads the last checkpoint, the new one or none, and the log after it. Each
acknowledged offset is there, as without checkpoints.
"""

from __future__ import annotations

from functools import partial

import pytest

from cleaner.checkpoints.making import CheckpointOrder, make_checkpoint
from server.coordination.coordinator_topic import CoordinatorTopic
from server.coordination.groups.loading import load_partition
from storage.log.log import PartitionLog
from tests.crash.coordinator_sweep import Sweep
from tests.crash.test_offset_crash_states import KINDS, PASSES, found_on, history
from tests.harness.compacted_log import meter_of
from tests.harness.offsets_disk import topic_of
from tests.harness.topics_world import open_world

KINDS_WITH_CHECKPOINTS = KINDS + ("checkpoint",) * 4


def make(log: PartitionLog) -> None:
    view = log.cleaning_view(as_if_rolled=True)
    order = CheckpointOrder(log=log, view=view, has_commits=True, memory_bytes=1 << 20)
    make_checkpoint(order, meter_of(log, view.generation))


history_with_checkpoints = partial(
    history, kinds=KINDS_WITH_CHECKPOINTS, passes={**PASSES, "checkpoint": make}
)
SWEEP = Sweep(history_with_checkpoints, found_on)


async def test_no_crash_around_a_checkpoint_loses_an_acknowledged_offset(
    capsys: pytest.CaptureFixture[str],
) -> None:
    await SWEEP.run_all("offsets with checkpoints", capsys)


async def test_the_starts_of_the_sweep_load_checkpoints() -> None:
    used = 0
    for state in (await history_with_checkpoints(1)).found[::20]:
        world = await open_world(state.disk, "/a")
        topic: CoordinatorTopic = topic_of(world)
        if topic.partitions_count:
            used += (await load_partition(topic, 0)).report.checkpoint is not None
        await world.stores.close()

    assert used > 0
