"""Counts the cleaner's events (implements the protocol of `cleaner/pacing/probe.py`)."""

from __future__ import annotations

import math
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from metrics.histogram import LONG_SECONDS, Histogram


class CompletedPass(Protocol):
    """The counted part of a `cleaner.rules.report.PassReport`."""

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
    def outranked(self) -> int: ...
    @property
    def unkeyed_moved(self) -> int: ...
    @property
    def keys_mapped(self) -> int: ...
    @property
    def keys_capacity(self) -> int: ...
    @property
    def parts(self) -> int: ...
    @property
    def bytes_untouched(self) -> int: ...
    @property
    def segments_untouched(self) -> int: ...
    @property
    def sidecars_built(self) -> int: ...
    @property
    def fenced_bytes(self) -> int: ...
    @property
    def seconds(self) -> float: ...
    @property
    def verify_seconds(self) -> float: ...


class CompletedSweep(Protocol):
    """The counted part of a `cleaner.rules.expiry_report.ExpiryReport`."""

    @property
    def expired(self) -> int: ...
    @property
    def tombstones(self) -> int: ...
    @property
    def unreadable(self) -> int: ...


class Partition(Protocol):
    """A `storage.formats.topic_partition.TopicPartition`."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...


class QuarantineEntry(Protocol):
    """The exported part of a `cleaner.pacing.quarantine.Quarantined`."""

    @property
    def topic_partition(self) -> Partition: ...
    @property
    def kind(self) -> str: ...
    @property
    def failures(self) -> int: ...


EventResult: TypeAlias = Literal["written", "lost"]
Result: TypeAlias = Literal["completed", "aborted", "failed"]

NO_PASSES: dict[Result, int] = {"completed": 0, "aborted": 0, "failed": 0}


@dataclass(slots=True)
class PartitionCounts:
    """Counts of the passes over one partition since the start."""

    passes_by_result: dict[Result, int] = field(default_factory=lambda: dict(NO_PASSES))
    bytes_reclaimed: int = 0
    completed_at: float | None = None
    """Monotonic seconds of the last completed pass; None before the first one."""


class CleanerCounts:
    """Counts the cleaner's events. Owned by the broker; read by the collector."""

    __slots__ = (
        "_clock",
        "_ended_seconds",
        "_lock",
        "_picked_at",
        "_started_at",
        "bytes_read_total",
        "bytes_reclaimed_total",
        "bytes_untouched_total",
        "bytes_written_total",
        "directories_short_of_space",
        "events_by_result",
        "expired_total",
        "expiry_tombstones_total",
        "fenced_bytes",
        "free_bytes_by_directory",
        "guard_bytes_per_second",
        "guard_quiet_p99",
        "last_passes",
        "leases",
        "outranked_total",
        "partitions",
        "pass_seconds",
        "passes_by_result",
        "quarantine",
        "records_by_verdict",
        "segments_untouched_total",
        "sidecars_built_total",
        "sweeps_total",
        "threads",
        "throttled_seconds",
        "unkeyed_moved_total",
        "unreadable_ttls_total",
        "verify_seconds",
        "worker_failures",
    )  # fmt: skip

    def __init__(self, *, threads: int = 1, clock: Callable[[], float] = time.monotonic) -> None:
        """Up to `threads` passes run at the same time."""
        # Constant after construction
        self._clock = clock
        # Guards the counts of the methods that several worker threads call at the same time.
        self._lock = threading.Lock()
        # State
        self.threads = threads
        self.bytes_read_total = 0
        self.bytes_written_total = 0
        self.throttled_seconds = 0.0
        self.verify_seconds = 0.0
        self.bytes_reclaimed_total = 0
        self.bytes_untouched_total = 0
        self.segments_untouched_total = 0
        self.sidecars_built_total = 0
        self.passes_by_result = dict(NO_PASSES)
        self.outranked_total = 0
        self.sweeps_total = 0
        self.expired_total = 0
        self.expiry_tombstones_total = 0
        self.unreadable_ttls_total = 0
        self.unkeyed_moved_total = 0
        self.records_by_verdict: defaultdict[str, int] = defaultdict(int)
        self.pass_seconds = Histogram(LONG_SECONDS)
        self.last_passes: deque[CompletedPass] = deque(maxlen=max(threads, 1))
        """The last completed passes, one per thread: Kafka's gauges show each thread's last pass."""
        self.partitions: dict[tuple[str, int], PartitionCounts] = {}
        """Partitions of existing topics over which a pass has ended."""
        self.worker_failures = 0
        self.events_by_result: dict[EventResult, int] = {"written": 0, "lost": 0}
        """Events for `__compaction_events`."""
        self.leases = 0
        """Number of logs that other processes have leased."""
        self.free_bytes_by_directory: dict[str, int] = {}
        self.directories_short_of_space = 0
        self.quarantine: dict[tuple[str, int], QuarantineEntry] = {}
        self.fenced_bytes: dict[tuple[str, int], int] = {}
        """Of the damaged segments that the last pass over a log has cleaned around, if there are any."""
        self.guard_bytes_per_second = math.inf
        self.guard_quiet_p99 = 0.0
        self._picked_at: float | None = None
        # The start time of each running pass.
        self._started_at: dict[tuple[str, int], float] = {}
        # The time that ended passes took in total.
        self._ended_seconds = 0.0

    def set_leases(self, count: int) -> None:
        """Set the number of logs that other processes have leased."""
        self.leases = count

    def set_threads(self, threads: int) -> None:
        """Set the number of passes that may run at the same time."""
        self.threads = threads
        self.last_passes = deque(self.last_passes, maxlen=max(threads, 1))

    @property
    def seconds_since_picked(self) -> float | None:
        """Time since a worker last looked for work; None before the first time."""
        return None if self._picked_at is None else self._clock() - self._picked_at

    def seconds_since_pass(self, counts: PartitionCounts) -> float | None:
        """Returns the time since a partition's last completed pass; None before the first one."""
        return None if counts.completed_at is None else self._clock() - counts.completed_at

    @property
    def running(self) -> int:
        """Number of running passes."""
        return len(self._started_at)

    @property
    def oldest_pass_seconds(self) -> float:
        """Age of the oldest running pass; 0 if none runs."""
        started = list(self._started_at.values())
        return self._clock() - min(started) if started else 0.0

    @property
    def busy_seconds(self) -> float:
        """Time spent in passes, including the running ones so far. Any thread."""
        with self._lock:
            now = self._clock()
            return self._ended_seconds + sum(now - each for each in self._started_at.values())

    def pass_started(self, topic: str, partition: int) -> None:
        with self._lock:
            self._started_at[topic, partition] = self._clock()

    def pass_completed(self, report: CompletedPass) -> None:
        counts = self._pass_ended("completed", report.topic, report.partition)
        reclaimed = max(report.bytes_before - report.bytes_after, 0)
        counts.bytes_reclaimed += reclaimed
        counts.completed_at = self._clock()
        self.last_passes.append(report)
        self.fenced_bytes.pop((report.topic, report.partition), None)
        if report.fenced_bytes:
            self.fenced_bytes[report.topic, report.partition] = report.fenced_bytes
        self.pass_seconds.observe(report.seconds)
        self.verify_seconds += report.verify_seconds
        self.bytes_reclaimed_total += reclaimed
        self.bytes_untouched_total += report.bytes_untouched
        self.segments_untouched_total += report.segments_untouched
        self.sidecars_built_total += report.sidecars_built
        self.outranked_total += report.outranked
        self.unkeyed_moved_total += report.unkeyed_moved
        for verdict, count in report.records_by_verdict.items():
            self.records_by_verdict[verdict] += count

    def swept(self, report: CompletedSweep) -> None:
        self.sweeps_total += 1
        self.expired_total += report.expired
        self.expiry_tombstones_total += report.tombstones
        self.unreadable_ttls_total += report.unreadable

    def pass_aborted(self, topic: str, partition: int, reason: str) -> None:
        self._pass_ended("aborted", topic, partition)

    def pass_failed(self, topic: str, partition: int, reason: str) -> None:
        self._pass_ended("failed", topic, partition)

    def quarantined(self, entry: QuarantineEntry) -> None:
        partition = entry.topic_partition
        self.quarantine[partition.topic, partition.partition] = entry

    def released(self, topic: str, partition: int) -> None:
        self.quarantine.pop((topic, partition), None)

    def topic_deleted(self, topic: str) -> None:
        """Forget the counts of a deleted topic's partitions."""
        for counts in (self.partitions, self.fenced_bytes):
            for key in [each for each in counts if each[0] == topic]:
                counts.pop(key, None)

    def stalled(self, topic: str, partition: int, seconds: float, phase: str) -> None:
        """Nothing is counted: the tasks that make no progress now are found at each scrape."""

    def picked(self, look: object) -> None:
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
        """Store each directory's free space, and the number of directories under disk pressure.

        Disk pressure means less free space than log.cleaner.disk.pressure.free.bytes.
        """
        self.free_bytes_by_directory = free_bytes_by_directory
        self.directories_short_of_space = short_count

    def events_written(self, count: int) -> None:
        """Count events that are durable in `__compaction_events`."""
        self.events_by_result["written"] += count

    def events_lost(self, count: int) -> None:
        """Count events that will never be written."""
        self.events_by_result["lost"] += count

    def guarded(self, bytes_per_second: float, quiet_p99: float | None) -> None:
        """Store the rate that the latency guard has chosen, and the quiet time's p99 that it used."""
        self.guard_bytes_per_second = bytes_per_second
        self.guard_quiet_p99 = quiet_p99 or 0.0

    def _pass_ended(self, result: Result, topic: str, partition: int) -> PartitionCounts:
        self.passes_by_result[result] += 1
        with self._lock:
            # A scrape must not find the pass in both or in neither: the sum would decrease.
            now = self._clock()
            self._ended_seconds += now - self._started_at.pop((topic, partition), now)
        counts = self.partitions.setdefault((topic, partition), PartitionCounts())
        counts.passes_by_result[result] += 1
        return counts
