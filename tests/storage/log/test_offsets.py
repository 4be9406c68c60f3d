from __future__ import annotations

import pytest

from protocol.wire.numbers import Offset
from storage.log.offsets import LogOffsets
from storage.state.log_states import LogStates
from tests.harness.log_home import LogHome
from tests.harness.memory_fs import MemoryFileSystem


def states() -> LogStates:
    """Of a log without transactions."""
    return LogHome(MemoryFileSystem()).create()._states


def offsets(start: int, end: int) -> LogOffsets:
    return LogOffsets(states(), start=Offset(start), end=Offset(end))


def test_everything_that_a_log_holds_when_it_opens_may_be_read() -> None:
    assert offsets(3, 9).high_watermark == 9


def test_the_high_watermark_stops_at_the_log_end_and_never_goes_back() -> None:
    each = offsets(0, 5)
    each.end = Offset(8)
    assert each.high_watermark == 5
    each.advance_high_watermark(Offset(20))
    assert each.high_watermark == 8
    each.advance_high_watermark(Offset(6))
    assert each.high_watermark == 8


def test_without_an_open_transaction_the_last_stable_offset_is_the_high_watermark() -> None:
    each = offsets(2, 5)
    each.end = Offset(9)
    assert each.last_stable == 5


@pytest.mark.parametrize(("start", "end", "high_watermark"), [(0, 4, 4), (0, 8, 6), (20, 20, 20)])
def test_a_truncation_moves_the_high_watermark_between_start_and_end(
    start: int, end: int, high_watermark: int
) -> None:
    each = offsets(0, 6)
    each.end = Offset(8)
    each.truncate(Offset(start), Offset(end))
    assert (each.start, each.high_watermark, each.end) == (start, high_watermark, end)


def test_a_log_that_ends_before_it_starts_is_a_mistake() -> None:
    each = offsets(4, 6)
    with pytest.raises(AssertionError):
        each.truncate(Offset(5), Offset(3))
