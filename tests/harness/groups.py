"""Which groups of segments a pass swaps in, and what the log holds in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest

from storage.cleaned_segment import CleanedSegment
from storage.log import PartitionLog
from storage.manifest import SegmentRow


@contextmanager
def watched_swaps(
    on_swap: Callable[[PartitionLog], None] = lambda log: None,
) -> Iterator[list[tuple[SegmentRow, ...]]]:
    """The sources of each swap of any log meanwhile; `on_swap` is called after each."""
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
