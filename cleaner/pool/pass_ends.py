"""Handles the ends of passes: logs and reports them, and puts failed partitions in quarantine."""

from __future__ import annotations

import logging
import math
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType

from cleaner.pacing.clock import Clock
from cleaner.pacing.meter import CleaningAborted
from cleaner.pacing.probe import CleanerProbe
from cleaner.pacing.quarantine import Quarantine, Quarantined, kind_of
from cleaner.pacing.settings import CleanerSettings
from cleaner.passes.verify_pass import VerificationFailed
from cleaner.pool.runner import RunningPass
from cleaner.rules.expiry_report import ExpiryReport
from cleaner.rules.fence import reason_of
from cleaner.rules.report import PassReport
from protocol.wire.errors import ProtocolError
from storage.files.errors import LogOffline, NoSpace, SegmentRemoved, StorageError, SwapRefused
from storage.formats.topic_partition import TopicPartition
from storage.threads import loop_thread

# The pool's logger: operators know the log lines of passes by that name.
_log = logging.getLogger("cleaner.pool.pool")


FENCES_LOGGED_MAX = 100
"""So many damaged segments are logged for each pass."""


@loop_thread
class PassEnds:
    """The results of each partition's last pass. Owned by the pool."""

    __slots__ = (
        "_cancelled_until", "_clock", "_last_reports", "_probe", "_quarantine", "_rest_seconds",
    )  # fmt: skip

    def __init__(self, settings: CleanerSettings, *, clock: Clock, probe: CleanerProbe) -> None:
        # Constant after construction.
        self._clock = clock
        self._probe = probe
        # State.
        self._quarantine = Quarantine(
            rest_ms=settings.retry_backoff_ms, rest_ms_max=settings.retry_backoff_max_ms
        )
        self._rest_seconds = settings.retry_backoff_ms / 1000
        self._last_reports: dict[TopicPartition, PassReport] = {}
        self._cancelled_until: dict[TopicPartition, float] = {}
        """Until when a partition rests whose pass an operator has cancelled, in monotonic seconds."""

    @property
    def last_reports(self) -> Mapping[TopicPartition, PassReport]:
        """The last completed pass of each partition, without its groups."""
        return MappingProxyType(self._last_reports)

    @property
    def quarantined(self) -> tuple[Quarantined, ...]:
        """The partitions whose last pass failed, whether they still rest or are due for a retry."""
        return self._quarantine.entries()

    def is_resting(self, partition: TopicPartition) -> bool:
        """Returns whether the partition is in quarantine and its retry is not due yet, or its pass was
        cancelled just now."""
        now = self._clock.monotonic()
        is_cancelled = self._cancelled_until.get(partition, now) > now
        return is_cancelled or self._quarantine.is_resting(partition, now=now)

    def next_retry_at(self) -> float:
        """Returns when the next retry is due, in monotonic seconds; inf if no partition rests."""
        now = self._clock.monotonic()
        rests = (moment for moment in self._cancelled_until.values() if moment > now)
        return min(self._quarantine.next_retry_at(now=now), min(rests, default=math.inf))

    def cancelled(self, partition: TopicPartition) -> None:
        """Keep the workers off a partition whose pass an operator cancels, for a while."""
        self._cancelled_until[partition] = self._clock.monotonic() + self._rest_seconds

    def completed(self, partition: TopicPartition, report: PassReport) -> None:
        """Record that a pass has completed."""
        _log.info("%s", report)
        self._log_new_fences(partition, report)
        self._last_reports[partition] = replace(report, group_reports=())
        self._release(partition)
        self._probe.pass_completed(report)

    def _log_new_fences(self, partition: TopicPartition, report: PassReport) -> None:
        last = self._last_reports.get(partition)
        known = {fence.name for fence in last.fences} if last else set()
        for fence in report.fences[:FENCES_LOGGED_MAX]:
            if fence.name not in known:
                _log.error("%s: %s stays as it is: %s", partition, fence, fence.reason)

    def stopped(self, partition: TopicPartition, because: str) -> None:
        """Record that a pass was stopped early without an error."""
        _log.info("%s: cleaning stopped: %s", partition, because)
        self._probe.pass_aborted(partition.topic, partition.partition, because)

    def failed(self, partition: TopicPartition, error: Exception, reason: str) -> None:
        """Record that a pass has failed, and put the partition in quarantine."""
        entry = self._quarantine.add(
            partition, reason, kind=kind_of(error), now=self._clock.monotonic()
        )
        _log.error(
            "%s: cleaning failed: %s; next attempt in %.0f s (failure %d)",
            partition,
            reason,
            entry.rest_seconds,
            entry.failures,
        )
        self._probe.pass_failed(partition.topic, partition.partition, reason)
        self._probe.quarantined(entry)

    def swept(self, report: ExpiryReport) -> None:
        """Record that a sweep for expired values has completed."""
        log = _log.info if report.expired or report.unreadable else _log.debug
        log("%s", report)
        self._probe.swept(report)

    @contextmanager
    def sweep_recorded(self, running: RunningPass) -> Iterator[None]:
        """Record how a sweep ends that does not complete. Its error is raised.

        It puts no partition in quarantine: a pass cleans around damage that a sweep meets, and the
        pass reports what it meets, too.
        """
        partition = running.log.topic_partition
        try:
            yield
        except (CleaningAborted, SegmentRemoved, LogOffline, NoSpace) as reason:
            because = running.stopped_because or str(reason)
            _log.info("%s: the sweep for expired values stopped: %s", partition, because)
            raise
        except Exception as error:
            is_known = isinstance(error, ProtocolError | StorageError)
            why = reason_of(error) if is_known else repr(error)
            text = "%s: the sweep for expired values failed, so none expires for now: %s"
            _log.error(text, partition, why, exc_info=not is_known)
            raise

    @contextmanager
    def recorded(self, running: RunningPass) -> Iterator[None]:
        """Record how a pass ends that does not complete: stopped, or failed. Its error is raised."""
        partition = running.log.topic_partition
        try:
            yield
        except (CleaningAborted, SwapRefused, SegmentRemoved, LogOffline) as reason:
            self.stopped(partition, running.stopped_because or str(reason))
            raise
        except (ProtocolError, StorageError, VerificationFailed) as error:
            self.failed(partition, error, reason_of(error))
            raise
        except Exception as error:
            _log.exception("%s: cleaning failed", partition)
            self.failed(partition, error, repr(error))
            raise

    def forget_all_but(self, present: Container[TopicPartition]) -> None:
        """Forget partitions that are gone."""
        for partition in self._quarantine.missing_from(present):
            self._release(partition)
        for known in (self._last_reports, self._cancelled_until):
            for partition in [each for each in known if each not in present]:
                del known[partition]

    def _release(self, partition: TopicPartition) -> None:
        if self._quarantine.release(partition):
            self._probe.released(partition.topic, partition.partition)
