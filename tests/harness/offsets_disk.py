"""`__consumer_offsets` on an in-memory disk, with syncs in the calling thread: for crash sweeps."""

from __future__ import annotations

import asyncio
from typing import cast

from cleaner.pacing.settings import CleanerSettings
from cleaner.passes.clean import clean
from cleaner.rules.cleaning_plan import plan_pass
from cleaner.rules.pick import assess
from server.coordination.coordinator_topic import OFFSETS_TOPIC, CoordinatorTopic
from server.durability.group_commit import GroupCommit
from server.runtime.executors import Executor
from storage.log.log import PartitionLog
from tests.harness.compacted_log import meter_of, never_stop
from tests.harness.served_broker import NOW_MS
from tests.harness.topics_world import FixedClock, World

LOADING = Executor("loading", threads=1)


SETTINGS = CleanerSettings(dedupe_buffer_size=1 << 20)


class SyncAtOnce:
    """Runs rounds of syncs in the calling thread, so that a history is the same each time."""

    def appended(self, log: PartitionLog) -> None:
        log.advance_high_watermark(log.sync())

    def durable(self, log: PartitionLog, offset: int) -> asyncio.Future[bool]:
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        future.set_result(log.high_watermark >= offset)
        return future


def topic_of(world: World, name: str = OFFSETS_TOPIC) -> CoordinatorTopic:
    return CoordinatorTopic(
        name,
        world.topics,
        cast("GroupCommit", SyncAtOnce()),
        FixedClock(),
        partitions_count=1,
        segment_bytes=1 << 20,
        loading=LOADING,
    )


def compact(log: PartitionLog) -> None:
    """Roll and clean, as on request."""
    log.roll(NOW_MS)
    view = log.cleaning_view()
    assessment = assess(view, log.config, NOW_MS, requested=True)
    if assessment.reason is None:
        return
    plan = plan_pass(view, assessment, now_ms=NOW_MS, stamp_ms=NOW_MS)
    meter = meter_of(log, view.generation, never_stop)
    clean(log.cleaning, plan, SETTINGS, meter=meter, monotonic=lambda: NOW_MS / 1000)
