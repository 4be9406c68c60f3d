"""What the cleaner tells its observers; `metrics/` implements it and names the metrics."""

from __future__ import annotations

from typing import Protocol

from cleaner.look import Look
from cleaner.quarantine import Quarantined
from cleaner.report import PassReport


class CleanerProbe(Protocol):
    """Verbs that the cleaner calls as things happen.

    The verbs marked *worker* are called from cleaner threads, several at a time, all others on
    the event loop. None may block or raise.
    """

    def pass_started(self, topic: str, partition: int) -> None:
        """A pass over this partition was planned and handed to a worker."""

    def pass_completed(self, report: PassReport) -> None:
        """A pass came to its end and everything it recopied is swapped in."""

    def pass_aborted(self, topic: str, partition: int, reason: str) -> None:
        """A pass stopped early because it was asked to or its log changed; nothing is wrong."""

    def pass_failed(self, topic: str, partition: int, reason: str) -> None:
        """A pass raised; `reason` is one sentence for people. The partition is quarantined."""

    def quarantined(self, entry: Quarantined) -> None:
        """A partition rests until its retry."""

    def released(self, topic: str, partition: int) -> None:
        """The partition left the quarantine: a pass succeeded, or the partition is gone."""

    def picked(self, look: Look) -> None:
        """All compacted logs were looked at."""

    def worker_failed(self, reason: str) -> None:
        """A worker met an exception that no pass is to blame for; it was logged and goes on."""

    def bytes_read(self, count: int) -> None:
        """Segment bytes were read (*worker*)."""

    def bytes_written(self, count: int) -> None:
        """Segment bytes were written (*worker*)."""

    def throttled(self, seconds: float) -> None:
        """A worker slept to stay within the I/O budget (*worker*)."""


class Probes:
    """Several probes that are told the same."""

    __slots__ = ("_probes",)

    def __init__(self, *probes: CleanerProbe) -> None:
        self._probes = probes

    def pass_started(self, topic: str, partition: int) -> None:
        for probe in self._probes:
            probe.pass_started(topic, partition)

    def pass_completed(self, report: PassReport) -> None:
        for probe in self._probes:
            probe.pass_completed(report)

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
    """A probe that nobody listens to."""

    __slots__ = ()

    def pass_started(self, topic: str, partition: int) -> None: ...
    def pass_completed(self, report: PassReport) -> None: ...
    def pass_aborted(self, topic: str, partition: int, reason: str) -> None: ...
    def pass_failed(self, topic: str, partition: int, reason: str) -> None: ...
    def quarantined(self, entry: Quarantined) -> None: ...
    def released(self, topic: str, partition: int) -> None: ...
    def picked(self, look: Look) -> None: ...
    def worker_failed(self, reason: str) -> None: ...
    def bytes_read(self, count: int) -> None: ...
    def bytes_written(self, count: int) -> None: ...
    def throttled(self, seconds: float) -> None: ...
