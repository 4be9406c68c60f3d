"""Inspections: work over a log that changes nothing, and that runs as a rehearsal does. Plain values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from cleaner.inspect.key_analysis import KeyAnalysis, key_analysis
from cleaner.inspect.log_digest import LogDigest, log_digest
from cleaner.pacing.meter import PassMeter
from cleaner.pacing.settings import CleanerSettings
from cleaner.pool.status import Task
from storage.log.cleaning_view import CleaningView

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Inspection(Generic[T]):
    """One kind of inspection, with its arguments."""

    task: Task
    run: Callable[[CleaningView, CleanerSettings, PassMeter, int], T]
    """Reads a view of rehearsed segments, `as_if_rolled`, in a thread; the last argument is the wall
    time in ms."""


def digest(end_offset: int | None = None) -> Inspection[LogDigest]:
    """Returns the inspection that computes the digest over the last record of each key below an offset,
    by default the last stable offset. It raises as `log_digest`."""
    return Inspection(
        Task.DIGEST,
        lambda view, settings, meter, _: log_digest(view, end_offset, settings, meter=meter),
    )


def count_keys(*, top: int) -> Inspection[KeyAnalysis]:
    """Returns the inspection that counts a log's keys, and names the `top` hottest. It raises as
    `key_analysis`."""
    return Inspection(
        Task.KEYS,
        lambda view, settings, meter, now_ms: key_analysis(
            view, settings, meter=meter, now_ms=now_ms, top=top
        ),
    )
