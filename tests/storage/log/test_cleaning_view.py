"""The view by which a pass plans."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storage.log.cleaning_view import READ_AHEAD_BYTES, window_ahead
from tests.harness.compacted_log import CompactedLog


def test_as_if_rolled_is_the_picture_after_a_roll() -> None:
    log = CompactedLog()
    log.append_segment((b"a", b"1"))
    log.append((b"b", b"1"))

    foretold = log.log.cleaning_view(as_if_rolled=True)
    log.roll()
    rolled = log.log.cleaning_view()

    assert foretold.sealed_rows == rolled.sealed_rows
    assert foretold.active_row.base_offset == rolled.active_row.base_offset
    assert foretold.active_row.size == rolled.active_row.size == 0
    assert replace(foretold, segments=(), active_row=rolled.active_row) == replace(
        rolled, segments=()
    )


def test_an_empty_active_segment_does_not_roll_there_either() -> None:
    log = CompactedLog()
    log.append_segment((b"a", b"1"))

    assert log.log.cleaning_view(as_if_rolled=True) == log.log.cleaning_view()


def test_what_is_appended_later_is_not_in_the_picture() -> None:
    log = CompactedLog()
    log.append((b"a", b"1"))
    (segment,) = log.log.cleaning_view(as_if_rolled=True).segments
    log.append((b"b", b"1"))

    assert len(segment.read_at(0, 1 << 20)) == segment.row.size < log.log.segments[0].size


@pytest.mark.parametrize(
    "size", [READ_AHEAD_BYTES // 4, READ_AHEAD_BYTES // 3, READ_AHEAD_BYTES * 2]
)
def test_a_sequential_reader_has_each_window_read_ahead_once(size: int) -> None:
    asked = [window_ahead(at, at + size) for at in range(0, 12 * READ_AHEAD_BYTES, size)]

    windows = [each for each in asked if each is not None]
    step = max(size, READ_AHEAD_BYTES)
    assert windows == list(range(windows[0], windows[-1] + 1, step))
    assert windows[0] == step
