"""Observes which groups of segments a pass swaps in, and the log's content between swaps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest

from storage.formats.manifest import SegmentRow
from storage.log.log import PartitionLog
from storage.segment.cleaned_segment import CleanedSegment


@contextmanager
def watched_swaps(
    on_swap: Callable[[PartitionLog], None] = lambda log: None,
) -> Iterator[list[tuple[SegmentRow, ...]]]:
    """Yields a list that collects the sources of each swap; `on_swap` is called after each."""
    groups: list[tuple[SegmentRow, ...]] = []
    swap = PartitionLog.swap

    def watched(
        log: PartitionLog,
        sources: Sequence[SegmentRow],
        cleaned: Sequence[CleanedSegment],
        *,
        generation: int,
        clean_offset: int | None,
    ) -> None:
        swap(log, sources, cleaned, generation=generation, clean_offset=clean_offset)
        groups.append(tuple(sources))
        on_swap(log)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PartitionLog, "swap", watched)
        yield groups
