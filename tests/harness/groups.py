"""Observes which groups of segments a pass swaps in, and the log's content between swaps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest

from protocol.wire.numbers import Offset
from storage.formats.manifest import SegmentRow
from storage.log.cleaning import LogCleaning
from storage.segment.cleaned_segment import CleanedSegment


@contextmanager
def watched_swaps(
    on_swap: Callable[[], None] = lambda: None,
) -> Iterator[list[tuple[SegmentRow, ...]]]:
    """Yields a list that collects the sources of each swap; `on_swap` is called after each."""
    groups: list[tuple[SegmentRow, ...]] = []
    swap = LogCleaning.swap

    def watched(
        cleaning: LogCleaning,
        sources: Sequence[SegmentRow],
        cleaned: Sequence[CleanedSegment],
        *,
        generation: int,
        clean_offset: Offset | None,
        has_history: bool | None = None,
    ) -> None:
        swap(
            cleaning,
            sources,
            cleaned,
            generation=generation,
            clean_offset=clean_offset,
            has_history=has_history,
        )
        groups.append(tuple(sources))
        on_swap()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LogCleaning, "swap", watched)
        yield groups
