"""A log as a pass takes it, of which nothing is swapped: its outputs lie elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from storage.cleaned_segment import CleanedSegment, CleanedSegmentWriter
from storage.manifest import SegmentRow


class LogNumbers(Protocol):
    """What a pass asks of a log: of a log itself, or of the plan that was made of it."""

    @property
    def generation(self) -> int: ...
    @property
    def log_start_offset(self) -> int: ...


class UnswappedLog:
    """A `CleanableLog` that writes swaps down, and changes nothing."""

    __slots__ = ("_log", "_new_segment", "swapped")

    def __init__(self, log: LogNumbers, new_segment: Callable[[int], CleanedSegmentWriter]) -> None:
        """`new_segment` begins an output at a base offset."""
        # Constant after construction.
        self._log = log
        self._new_segment = new_segment
        # State.
        self.swapped: set[int] = set()
        """The base offsets of the groups whose swaps it took."""

    @property
    def generation(self) -> int:
        return self._log.generation

    @property
    def log_start_offset(self) -> int:
        return self._log.log_start_offset

    def new_cleaned_segment(self, base_offset: int) -> CleanedSegmentWriter:
        return self._new_segment(base_offset)

    def swap(
        self,
        sources: Sequence[SegmentRow],
        cleaned: Sequence[CleanedSegment],
        *,
        generation: int,
        clean_offset: int | None,
    ) -> None:
        self.swapped.add(sources[0].base_offset)

    def commit_clean_offset(self, clean_offset: int, *, generation: int) -> None:
        """Nothing is committed."""
