"""The events that the cleaner reports; `metrics/` implements the interface and names the metrics."""

from __future__ import annotations

from typing import Protocol

from cleaner.pacing.quarantine import Quarantined
from cleaner.rules.expiry_report import ExpiryReport
from cleaner.rules.look import Look
from cleaner.rules.report import PassReport


class CleanerProbe(Protocol):
    """Methods that the cleaner calls when events happen.

    Methods marked *worker* are called from cleaner threads, possibly several at once, all others on the
    event loop. None may block or raise.
    """

    def pass_started(self, topic: str, partition: int) -> None:
        """Called when a pass over this partition was planned and handed to a worker."""

    def pass_completed(self, report: PassReport) -> None:
        """Called when a pass has completed and all its groups are swapped in."""

    def swept(self, report: ExpiryReport) -> None:
        """Called when a sweep for expired values has completed."""

    def pass_aborted(self, topic: str, partition: int, reason: str) -> None:
        """Called when a pass stopped early, on request or because its log changed: not an error."""

    def pass_failed(self, topic: str, partition: int, reason: str) -> None:
        """Called when a pass failed and its partition is quarantined; `reason` is a sentence for
        people."""

    def quarantined(self, entry: Quarantined) -> None:
        """Called when a partition goes into quarantine until its retry."""

    def released(self, topic: str, partition: int) -> None:
        """Called when a partition leaves the quarantine: a pass succeeded, or the partition is gone."""

    def stalled(self, topic: str, partition: int, seconds: float, phase: str) -> None:
        """Called once when a pass has made no progress for so long, in this phase."""

    def picked(self, look: Look) -> None:
        """Called after a look at all compacted logs."""

    def worker_failed(self, reason: str) -> None:
        """Called when a worker has logged an exception outside of a pass, and continues or ended."""

    def bytes_read(self, count: int) -> None:
        """Called after segment bytes were read (*worker*)."""

    def bytes_written(self, count: int) -> None:
        """Called after segment bytes were written (*worker*)."""

    def throttled(self, seconds: float) -> None:
        """Called after a worker slept to stay within the I/O budget (*worker*)."""


class Probes:
    """Forwards every event to several probes."""

    __slots__ = ("_probes",)

    def __init__(self, *probes: CleanerProbe) -> None:
        self._probes = probes

    def pass_started(self, topic: str, partition: int) -> None:
        for probe in self._probes:
            probe.pass_started(topic, partition)

    def pass_completed(self, report: PassReport) -> None:
        for probe in self._probes:
            probe.pass_completed(report)

    def swept(self, report: ExpiryReport) -> None:
        for probe in self._probes:
            probe.swept(report)

    def pass_aborted(self, topic: str, partition: int, reason: str) -> None:
        for probe in self._probes:
            probe.pass_aborted(topic, partition, reason)

    def pass_failed(self, topic: str, partition: int, reason: str) -> None:
        for probe in self._probes:
            probe.pass_failed(topic, partition, reason)

    def quarantined(self, entry: Quarantined) -> None:
        for probe in self._probes:
            probe.quarantined(entry)

    def released(self, topic: str, partition: int) -> None:
        for probe in self._probes:
            probe.released(topic, partition)

    def stalled(self, topic: str, partition: int, seconds: float, phase: str) -> None:
        for probe in self._probes:
            probe.stalled(topic, partition, seconds, phase)

    def picked(self, look: Look) -> None:
        for probe in self._probes:
            probe.picked(look)

    def worker_failed(self, reason: str) -> None:
        for probe in self._probes:
            probe.worker_failed(reason)

    def bytes_read(self, count: int) -> None:
        for probe in self._probes:
            probe.bytes_read(count)

    def bytes_written(self, count: int) -> None:
        for probe in self._probes:
            probe.bytes_written(count)

    def throttled(self, seconds: float) -> None:
        for probe in self._probes:
            probe.throttled(seconds)


class SilentProbe:
    """A probe that ignores all events."""

    __slots__ = ()

    def pass_started(self, topic: str, partition: int) -> None: ...
    def pass_completed(self, report: PassReport) -> None: ...
    def swept(self, report: ExpiryReport) -> None: ...
    def pass_aborted(self, topic: str, partition: int, reason: str) -> None: ...
    def pass_failed(self, topic: str, partition: int, reason: str) -> None: ...
    def quarantined(self, entry: Quarantined) -> None: ...
    def released(self, topic: str, partition: int) -> None: ...
    def stalled(self, topic: str, partition: int, seconds: float, phase: str) -> None: ...
    def picked(self, look: Look) -> None: ...
    def worker_failed(self, reason: str) -> None: ...
    def bytes_read(self, count: int) -> None: ...
    def bytes_written(self, count: int) -> None: ...
    def throttled(self, seconds: float) -> None: ...
