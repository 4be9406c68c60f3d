"""How passes end: what is said of it, what is kept of it, and which partition rests for it."""

from __future__ import annotations

import logging
from collections.abc import Container, Mapping
from dataclasses import replace
from types import MappingProxyType

from cleaner.clock import Clock
from cleaner.probe import CleanerProbe
from cleaner.quarantine import Quarantine, Quarantined, kind_of
from cleaner.report import PassReport
from cleaner.settings import CleanerSettings
from protocol.errors import DecompressionTooLarge
from storage.topic_partition import TopicPartition

# The pool's: by that name operators know the lines of passes.
_log = logging.getLogger("cleaner.pool")


class PassEnds:
    """How each partition's last pass ended. Owned by the pool, used on the event loop."""

    __slots__ = ("_clock", "_last_reports", "_probe", "_quarantine")

    def __init__(self, settings: CleanerSettings, *, clock: Clock, probe: CleanerProbe) -> None:
        # Constant after construction.
        self._clock = clock
        self._probe = probe
        # State.
        self._quarantine = Quarantine(
            rest_ms=settings.retry_backoff_ms, rest_ms_max=settings.retry_backoff_max_ms
        )
        self._last_reports: dict[TopicPartition, PassReport] = {}

    @property
    def last_reports(self) -> Mapping[TopicPartition, PassReport]:
        """The last completed pass of each partition, without its groups."""
        return MappingProxyType(self._last_reports)

    @property
    def quarantined(self) -> tuple[Quarantined, ...]:
        """The partitions whose last pass failed, whether resting or due for a retry."""
        return self._quarantine.entries()

    def is_resting(self, partition: TopicPartition) -> bool:
        """Whether the partition may not be tried yet."""
        return self._quarantine.is_resting(partition, now=self._clock.monotonic())

    def next_retry_at(self) -> float:
        """When the next resting partition may be tried, in monotonic seconds; inf if none rests."""
        return self._quarantine.next_retry_at(now=self._clock.monotonic())

    def completed(self, partition: TopicPartition, report: PassReport) -> None:
        """A pass has come to its end."""
        _log.info("%s", report)
        self._last_reports[partition] = replace(report, group_reports=())
        self._release(partition)
        self._probe.pass_completed(report)

    def stopped(self, partition: TopicPartition, because: str) -> None:
        """A pass has ended early, and nothing is wrong."""
        _log.info("%s: cleaning stopped: %s", partition, because)
        self._probe.pass_aborted(partition.topic, partition.partition, because)

    def failed(self, partition: TopicPartition, error: Exception, reason: str) -> None:
        """A pass has failed; the partition rests."""
        entry = self._quarantine.add(
            partition, reason, kind=kind_of(error), now=self._clock.monotonic()
        )
        _log.error(
            "%s: cleaning failed: %s; it is tried again in %.0f s (failure %d)",
            partition,
            reason,
            entry.rest_seconds,
            entry.failures,
        )
        self._probe.pass_failed(partition.topic, partition.partition, reason)
        self._probe.quarantined(entry)

    def forget_all_but(self, present: Container[TopicPartition]) -> None:
        """Keep nothing of partitions that are gone."""
        for partition in self._quarantine.missing_from(present):
            self._release(partition)
        for partition in [each for each in self._last_reports if each not in present]:
            del self._last_reports[partition]

    def _release(self, partition: TopicPartition) -> None:
        if self._quarantine.release(partition):
            self._probe.released(partition.topic, partition.partition)


def reason_of(error: Exception) -> str:
    """What went wrong, where, and what to do about it, in one line for people."""
    where = [str(error), *getattr(error, "__notes__", ())]
    if isinstance(error, DecompressionTooLarge):
        where.append("raise log.cleaner.decompressed.batch.bytes.max if they are to be cleaned")
    return "; ".join(where)
