"""Records how each cleaning pass ended (`storage/ledger/pass_history.py`), off the event loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from cleaner.pacing.clock import Clock
from cleaner.pacing.probe import SilentProbe
from cleaner.pacing.quarantine import Quarantined
from cleaner.rules.expiry_report import ExpiryReport
from cleaner.rules.report import PassReport
from server.admin.compaction_json import fences_json
from storage.ledger.pass_history import PassHistory
from storage.threads import loop_thread

REPORT_FIELDS = tuple(field.name for field in fields(PassReport) if field.name != "group_reports")
"""The fields of a report that are kept; the reports of groups matter only right after the pass."""

SWEEP_FIELDS = tuple(
    field.name
    for field in fields(ExpiryReport)
    if field.name not in ("topic", "partition", "ranges")
)


@loop_thread
class HistoryProbe(SilentProbe):
    """Receives the pool's events and adds them to the history, which is written in the background."""

    __slots__ = ("_background", "_clock", "_history", "_started_at")

    def __init__(
        self,
        history: PassHistory,
        *,
        background: Callable[[Callable[[], None]], None],
        clock: Clock,
    ) -> None:
        # Constant after construction
        self._history = history
        self._background = background
        self._clock = clock
        # State: when each running pass started, in monotonic seconds.
        self._started_at: dict[tuple[str, int], float] = {}

    def pass_started(self, topic: str, partition: int) -> None:
        self._started_at[topic, partition] = self._clock.monotonic()

    def pass_completed(self, report: PassReport) -> None:
        members = {name: _short(getattr(report, name)) for name in REPORT_FIELDS}
        members["fences"] = fences_json(report)
        self._write("completed", report.topic, report.partition, members)

    def swept(self, report: ExpiryReport) -> None:
        """Record a sweep for expired values that has appended tombstones, or read unreadable headers."""
        if not report.tombstones and not report.unreadable:
            return
        members = {name: _short(getattr(report, name)) for name in SWEEP_FIELDS}
        # Releases before sweeps print the error of all but completed passes.
        members["error"] = ""
        self._write("swept", report.topic, report.partition, members)

    def pass_aborted(self, topic: str, partition: int, reason: str) -> None:
        self._write("aborted", topic, partition, {"error": reason})

    def quarantined(self, entry: Quarantined) -> None:
        """Record that a pass failed and its partition is in quarantine."""
        members = {
            "error": entry.reason,
            "kind": entry.kind,
            "failures": entry.failures,
            "quarantined_seconds": entry.rest_seconds,
        }
        partition = entry.topic_partition
        self._write("failed", partition.topic, partition.partition, members)

    def _write(self, result: str, topic: str, partition: int, members: dict[str, Any]) -> None:
        now = self._clock.monotonic()
        entry = {
            "ended_ms": self._clock.now_ms(),
            "result": result,
            "topic": topic,
            "partition": partition,
            "seconds": _short(now - self._started_at.pop((topic, partition), now)),
            **members,
        }
        self._history.add(entry)
        self._background(self._history.write)


def _short(value: object) -> object:
    """Returns a float rounded to microseconds, so that the bounded history holds more passes."""
    return round(value, 6) if isinstance(value, float) else value
