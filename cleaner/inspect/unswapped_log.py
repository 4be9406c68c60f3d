"""A log for passes that must not swap: their outputs are written elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from protocol.wire.numbers import Offset
from storage.formats.compaction_strategy import CompactionStrategy
from storage.formats.manifest import SegmentRow
from storage.segment.cleaned_segment import CleanedSegment, CleanedSegmentWriter

NewSegment: TypeAlias = Callable[[Offset, CompactionStrategy], CleanedSegmentWriter]


class LogNumbers(Protocol):
    """The numbers that a pass reads from a log; a log and a `RemotePlan` have them."""

    @property
    def generation(self) -> int: ...
    @property
    def log_start_offset(self) -> Offset: ...


class UnswappedLog:
    """A `CleanableLog` that records swaps and changes nothing."""

    __slots__ = ("_log", "_new_segment", "swapped")

    def __init__(self, log: LogNumbers, new_segment: NewSegment) -> None:
        """`new_segment` returns the writer of an output, given its base offset and the strategy."""
        # Constant after construction.
        self._log = log
        self._new_segment = new_segment
        # State.
        self.swapped: set[int] = set()
        """The base offsets of the groups that the pass would have swapped."""

    @property
    def generation(self) -> int:
        return self._log.generation

    @property
    def log_start_offset(self) -> Offset:
        return self._log.log_start_offset

    @property
    def kept_number(self) -> int:
        return 0

    def new_cleaned_segment(
        self, base_offset: Offset, strategy: CompactionStrategy
    ) -> CleanedSegmentWriter:
        return self._new_segment(base_offset, strategy)

    def swap(
        self,
        sources: Sequence[SegmentRow],
        cleaned: Sequence[CleanedSegment],
        *,
        generation: int,
        clean_offset: Offset | None,
        has_history: bool | None = None,
    ) -> None:
        self.swapped.add(sources[0].base_offset)

    def commit_clean_offset(
        self,
        clean_offset: Offset,
        *,
        generation: int,
        is_finished: bool = True,
        has_history: bool | None = None,
    ) -> None:
        """Does nothing."""
