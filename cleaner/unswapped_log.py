"""The log of a plan as a rewriting takes it: written elsewhere, and its swaps written down."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cleaner.remote_plan import RemotePlan
from storage.cleaned_segment import CleanedSegment, CleanedSegmentWriter
from storage.manifest import SegmentRow


class RemoteLog:
    """The log as a rewriting takes it: outputs go to an attempt's folder, swaps are written down."""

    __slots__ = ("_new_segment", "_plan", "swapped")

    def __init__(
        self, plan: RemotePlan, new_segment: Callable[[int], CleanedSegmentWriter]
    ) -> None:
        # Constant after construction.
        self._plan = plan
        self._new_segment = new_segment
        # State.
        self.swapped: set[int] = set()
        """The base offsets of the groups whose swaps it took."""

    @property
    def generation(self) -> int:
        return self._plan.generation

    @property
    def log_start_offset(self) -> int:
        return self._plan.log_start_offset

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
        """Nothing is committed here."""
