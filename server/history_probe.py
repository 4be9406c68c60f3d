"""Writes down how each cleaning pass ended (`storage/pass_history.py`), off the event loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from cleaner.clock import Clock
from cleaner.probe import SilentProbe
from cleaner.quarantine import Quarantined
from cleaner.report import PassReport
from storage.pass_history import PassHistory

TOLD = tuple(field.name for field in fields(PassReport) if field.name != "group_reports")
"""What of a report is kept; a group's part is only of use while one looks at the pass."""


class HistoryProbe(SilentProbe):
    """Told by the pool, on the event loop; `background` writes the lines, in about their order."""

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
        # State: monotonic seconds, of each running pass.
        self._started_at: dict[tuple[str, int], float] = {}

    def pass_started(self, topic: str, partition: int) -> None:
        self._started_at[topic, partition] = self._clock.monotonic()

    def pass_completed(self, report: PassReport) -> None:
        members = {name: _short(getattr(report, name)) for name in TOLD}
        self._write("completed", report.topic, report.partition, members)

    def pass_aborted(self, topic: str, partition: int, reason: str) -> None:
        self._write("aborted", topic, partition, {"error": reason})

    def quarantined(self, entry: Quarantined) -> None:
        """A pass failed, and its partition rests for that."""
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
        self._background(lambda: self._history.append(entry))


def _short(value: object) -> object:
    """To the microsecond, so that more passes fit into a history of so many bytes."""
    return round(value, 6) if isinstance(value, float) else value
