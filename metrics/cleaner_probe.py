"""What the cleaner tells its observers (the protocol of `cleaner/probe.py`), counted."""

from __future__ import annotations

import math
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Protocol

from metrics.histogram import LONG_SECONDS, Histogram


class CompletedPass(Protocol):
    """The part of a `cleaner.report.PassReport` that is counted."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def bytes_before(self) -> int: ...
    @property
    def bytes_after(self) -> int: ...
    @property
    def records_by_verdict(self) -> Mapping[str, int]: ...
    @property
    def keys_mapped(self) -> int: ...
    @property
    def keys_capacity(self) -> int: ...
    @property
    def seconds(self) -> float: ...
    @property
    def verify_seconds(self) -> float: ...


class FinishedLook(Protocol):
    """The part of a `cleaner.lookout.Look` that is shown."""

    @property
    def dirty_ratio_max(self) -> float: ...
    @property
    def overdue_count(self) -> int: ...
    @property
    def overdue_ms_max(self) -> int: ...


class CleanerCounts:
    """Counts what the cleaner says. Owned by the broker; read by the collector."""

    __slots__ = (
        "_clock",
        "_lock",
        "_picked_at",
        "_started_at",
        "bytes_read_total",
        "bytes_reclaimed_total",
        "bytes_written_total",
        "directories_short_of_space",
        "dirty_ratio_max",
        "free_bytes_by_directory",
        "guard_bytes_per_second",
        "guard_quiet_p99",
        "map_utilization",
        "overdue_count",
        "overdue_ms_max",
        "pass_seconds",
        "passes_by_result",
        "quarantine",
        "records_by_verdict",
        "throttled_seconds",
        "verify_seconds",
        "worker_failures",
    )  # fmt: skip

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        # Constant after construction
        self._clock = clock
        # Covers the counts of the verbs that workers call, several threads at a time.
        self._lock = threading.Lock()
        # State
        self.bytes_read_total = 0
        self.bytes_written_total = 0
        self.throttled_seconds = 0.0
        self.verify_seconds = 0.0
        self.bytes_reclaimed_total = 0
        self.passes_by_result: dict[str, int] = {"completed": 0, "aborted": 0, "failed": 0}
        self.records_by_verdict: defaultdict[str, int] = defaultdict(int)
        self.pass_seconds = Histogram(LONG_SECONDS)
        self.map_utilization = 0.0
        self.worker_failures = 0
        self.dirty_ratio_max = 0.0
        self.free_bytes_by_directory: dict[str, int] = {}
        self.directories_short_of_space = 0
        self.overdue_count = 0
        self.overdue_ms_max = 0
        self.quarantine: dict[tuple[str, int], int] = {}
        self.guard_bytes_per_second = math.inf
        self.guard_quiet_p99 = 0.0
        self._picked_at: float | None = None
        # Of each running pass.
        self._started_at: dict[tuple[str, int], float] = {}

    @property
    def seconds_since_picked(self) -> float | None:
        """How long ago logs were last looked at; None before the first time."""
        return None if self._picked_at is None else self._clock() - self._picked_at

    @property
    def running(self) -> int:
        """How many passes run."""
        return len(self._started_at)

    @property
    def oldest_pass_seconds(self) -> float:
        """How long the oldest of the running passes has been running; 0 where none is."""
        started = list(self._started_at.values())
        return self._clock() - min(started) if started else 0.0

    def pass_started(self, topic: str, partition: int) -> None:
        self._started_at[topic, partition] = self._clock()

    def pass_completed(self, report: CompletedPass) -> None:
        self._pass_ended("completed", report.topic, report.partition)
        self.pass_seconds.observe(report.seconds)
        self.verify_seconds += report.verify_seconds
        self.bytes_reclaimed_total += max(report.bytes_before - report.bytes_after, 0)
        for verdict, count in report.records_by_verdict.items():
            self.records_by_verdict[verdict] += count
        if report.keys_capacity:
            self.map_utilization = report.keys_mapped / report.keys_capacity

    def pass_aborted(self, topic: str, partition: int) -> None:
        self._pass_ended("aborted", topic, partition)

    def pass_failed(self, topic: str, partition: int, reason: str) -> None:
        self._pass_ended("failed", topic, partition)

    def quarantined(self, topic: str, partition: int, reason: str, *, bytes_count: int) -> None:
        self.quarantine[topic, partition] = bytes_count

    def released(self, topic: str, partition: int) -> None:
        self.quarantine.pop((topic, partition), None)

    def picked(self, look: FinishedLook) -> None:
        self.dirty_ratio_max = look.dirty_ratio_max
        self.overdue_count = look.overdue_count
        self.overdue_ms_max = look.overdue_ms_max
        self._picked_at = self._clock()

    def worker_failed(self, reason: str) -> None:
        self.worker_failures += 1

    def bytes_read(self, count: int) -> None:
        with self._lock:
            self.bytes_read_total += count

    def bytes_written(self, count: int) -> None:
        with self._lock:
            self.bytes_written_total += count

    def throttled(self, seconds: float) -> None:
        with self._lock:
            self.throttled_seconds += seconds

    def space_checked(self, free_bytes_by_directory: dict[str, int], *, short_count: int) -> None:
        """The disks were asked; so many have less than log.cleaner.disk.pressure.free.bytes."""
        self.free_bytes_by_directory = free_bytes_by_directory
        self.directories_short_of_space = short_count

    def guarded(self, bytes_per_second: float, quiet_p99: float | None) -> None:
        """The latency guard has decided how fast the cleaner may go, by that p99 of quiet time."""
        self.guard_bytes_per_second = bytes_per_second
        self.guard_quiet_p99 = quiet_p99 or 0.0

    def _pass_ended(self, result: str, topic: str, partition: int) -> None:
        self.passes_by_result[result] += 1
        self._started_at.pop((topic, partition), None)
