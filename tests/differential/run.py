"""Give one workload to Apache Kafka's cleaner and to ours, and compare after every pass.

Each workload chooses at random what happens to our key sidecars between passes; it must not matter.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from storage.formats.log_config import LogConfig
from tests.differential.compare import Difference, Moment, Stale, differences, values_of
from tests.differential.kompakt_log import KompaktLog
from tests.differential.workload import (
    DELETE_RETENTION_MS,
    SEGMENT_BYTES,
    START_MS,
    Advance,
    Append,
    Clean,
    Expire,
    Reopen,
    Roll,
    Step,
    Workload,
)
from tests.harness.kafka_cleaner import DumpedBatch, KafkaCleaner
from tests.harness.sidecar_mode import SidecarMode

TOPIC_CONFIG = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.0",
    "delete.retention.ms": str(DELETE_RETENTION_MS),
    "internal.segment.bytes": str(SEGMENT_BYTES),
    "segment.ms": str(2**63 - 1),
    "index.interval.bytes": "1000",
    "max.message.bytes": str(8 << 20),
}
"""What both logs are configured with."""


@dataclass(slots=True)
class Outcome:
    """The outcome of one workload."""

    workload: Workload
    records_appended: int = 0
    records_left: int = 0
    comparisons: int = 0
    kafka_passes: int = 0
    our_passes: int = 0
    resurrected_in_kafka: int = 0
    """Keys that were deleted, of which Kafka's log has a value in the end."""
    differences: list[Difference] = field(default_factory=list)

    @property
    def unexplained(self) -> list[Difference]:
        return [difference for difference in self.differences if difference.reason is None]


def run_workload(workload: Workload, kafka: KafkaCleaner) -> Outcome:
    """Run it to its end."""
    pair = Pair(workload, kafka)
    for step in workload.steps():
        pair.take(step)
    pair.finish()
    return pair.outcome


class Pair:
    """Both logs, side by side."""

    def __init__(self, workload: Workload, kafka: KafkaCleaner) -> None:
        self.outcome = Outcome(workload)
        self._kafka = kafka
        self._now_ms = START_MS
        map_keys = workload.profile.map_keys
        config = LogConfig.from_overrides(TOPIC_CONFIG, LogConfig())
        sidecars = Random(workload.name).choice(tuple(SidecarMode))
        self._ours = KompaktLog(config, map_keys=map_keys, now_ms=START_MS, sidecars=sidecars)
        kafka.new(TOPIC_CONFIG, map_keys=map_keys, now_ms=START_MS)
        self._passes_were_cut = False
        self._stale = Stale()
        self._marker_horizons: dict[int, int] = {}
        self._last: list[Difference] = []

    def take(self, step: Step) -> None:
        """Do one step on both sides."""
        sides = (self._kafka, self._ours)
        match step:
            case Append(batch, record_count):
                self.outcome.records_appended += record_count
                for side in sides:
                    side.append(batch)
            case Roll():
                for side in sides:
                    side.roll()
            case Advance(milliseconds):
                self._now_ms += milliseconds
                for side in sides:
                    side.set_clock(self._now_ms)
            case Expire():
                for side in sides:
                    side.expire_producers()
            case Reopen():
                for side in sides:
                    side.reopen()
            case Clean(passes_max, is_compared):
                self._clean(passes_max, is_compared=is_compared)

    def finish(self) -> None:
        """All is decided and due, so differences that were a matter of time have no reason now."""
        self.outcome.differences += [
            Difference(f"to the end: {each.what}", None)
            for each in self._last
            if each.reason is not None and not each.reason.may_last
        ]
        theirs, ours = self._dumps()
        self.outcome.records_left = sum(batch.record_count for batch in ours)
        self.outcome.resurrected_in_kafka = len(values_of(theirs).keys() - values_of(ours).keys())

    def _dumps(self) -> tuple[list[DumpedBatch], list[DumpedBatch]]:
        """Kafka's log and ours, through Kafka's reader."""
        return self._kafka.dump(), self._kafka.read(self._ours.batches())

    def _clean(self, passes_max: int, *, is_compared: bool) -> None:
        kafka_passes = self._kafka.clean(passes_max)
        our_passes = self._ours.clean(passes_max)
        self.outcome.kafka_passes += len(kafka_passes)
        self.outcome.our_passes += our_passes
        self._passes_were_cut |= max(len(kafka_passes), our_passes) > 1 or not is_compared
        if is_compared:
            self.outcome.comparisons += 1
            self._last = list(self._differences([each.end_offset for each in kafka_passes]))
            self.outcome.differences += self._last

    def _differences(self, kafka_passes: list[int]) -> Iterator[Difference]:
        clean_offset = self._ours.clean_offset
        if kafka_passes and kafka_passes[-1] != clean_offset:
            text = f"Kafka's log is clean up to {kafka_passes[-1]}, ours up to {clean_offset}"
            yield Difference(text, None)
        moment = Moment(
            now_ms=self._now_ms,
            tail_offset=clean_offset - 1,
            kafka_was_idle=not kafka_passes,
            marker_horizons=dict(self._marker_horizons),
            stale=self._stale,
            passes_were_cut=self._passes_were_cut,
        )
        theirs, ours = self._dumps()
        if self._passes_were_cut:
            self._stale.look(theirs)
        yield from differences(theirs, ours, moment)
        for batch in ours:
            if batch.is_control and batch.delete_horizon_ms >= 0:
                self._marker_horizons[batch.base_offset] = batch.delete_horizon_ms
