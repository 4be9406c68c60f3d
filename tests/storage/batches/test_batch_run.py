"""The runs of an answer: whole batches that continue the log; a cut tail is left for the next answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.records.batch_header import read_header
from protocol.records.control_record import ControlType
from protocol.wire.numbers import Epoch, Offset
from storage.batches.batch_run import BatchRun, check_run, run_of_one, takes_long
from storage.batches.gap_batch import gap_batch
from tests.harness.log_builder import batch_of, headers_in, marker_of, run_of

PAIR = [(b"k", b"v")]
MAGIC_AT = 16
"""Bytes up to here are not covered by the CRC: base offset, length, epoch, format."""


def batches(*places: tuple[int, int, int]) -> bytes:
    """Returns batches at (base offset, records, epoch)."""
    return b"".join(
        batch_of(PAIR * count, base_offset=base, leader_epoch=epoch)
        for base, count, epoch in places
    )


def checked(records: bytes, end: int = 0, last_epoch: int = -1, **bounds: int) -> BatchRun:
    return check_run(memoryview(records), end=Offset(end), last_epoch=Epoch(last_epoch), **bounds)


def bases(run: BatchRun) -> list[int]:
    return [header.base_offset for header in headers_in(bytes(run.view))]


def test_gaps_are_legal_and_batches_that_the_log_has_are_left_out() -> None:
    records = batches((0, 2, 1), (7, 1, 1), (20, 3, 4))
    whole, later = checked(records), checked(records, end=2)
    assert (bases(whole), bases(later)) == ([0, 7, 20], [7, 20])
    for run in (whole, later):
        assert (run.end_offset, run.last_epoch, run.fault, len(run.rest)) == (23, 4, "", 0)
    assert (whole.base_offset, later.base_offset) == (0, 7)


def test_control_batches_and_batches_without_records_are_legal() -> None:
    marker = marker_of(ControlType.ABORT, 7)
    empty = gap_batch(Offset(1), Offset(9), Epoch(3))
    run = checked(bytes(marker + empty))
    assert (bases(run), run.end_offset, run.last_epoch) == ([0, 1], 10, 3)


def test_batch_that_is_cut_off_comes_with_the_next_answer() -> None:
    records, first = batches((0, 2, 1), (7, 1, 1)), len(batches((0, 2, 1)))
    for size in range(len(records)):
        run = checked(records[:size])
        assert bases(run) == ([0] if size >= first else [])
        assert (run.fault, len(run.rest)) == ("", 0)


def test_answer_of_batches_that_the_log_has_gives_an_empty_run() -> None:
    run = checked(batches((0, 2, 1), (2, 1, 1)), end=3, last_epoch=1)
    assert (len(run.view), run.end_offset, run.last_epoch, run.fault) == (0, 3, 1, "")


@given(count=st.integers(1, 12), size_max=st.integers(0, 400))
def test_runs_within_a_bound_make_up_the_whole_answer(count: int, size_max: int) -> None:
    records = batches(*[(3 * number, 1 + number % 3, number // 4) for number in range(count)])
    found, rest, end, epoch = [], records, 0, -1
    while rest:
        run = checked(rest, end, epoch, size_max=size_max)
        assert len(run.view) <= size_max or len(bases(run)) == 1
        found.append(bytes(run.view))
        rest, end, epoch = bytes(run.rest), run.end_offset, run.last_epoch
    assert b"".join(found) == records


@pytest.mark.parametrize(
    ("records", "end", "last_epoch", "sound"),
    [
        pytest.param(batches((0, 3, 1)), 1, -1, 0, id="begins_below_the_end"),
        pytest.param(batches((5, 1, 1)), 5, 2, 0, id="epoch_falls_below_the_logs"),
        pytest.param(batches((0, 2, 1), (1, 2, 1)), 0, -1, 1, id="offsets_overlap"),
        pytest.param(batches((0, 1, 3), (1, 1, 2)), 0, -1, 1, id="epoch_falls"),
        pytest.param(batches((0, 1, 3), (1, 1, (1 << 30) + 1)), 0, -1, 1, id="epoch_too_large"),
    ],
)
def test_batch_that_does_not_continue_the_log_is_a_fault(
    records: bytes, end: int, last_epoch: int, sound: int
) -> None:
    run = checked(records, end, last_epoch)
    assert "does not continue the log" in run.fault
    assert (len(bases(run)), len(run.rest)) == (sound, 0)


@given(data=st.data())
def test_changed_bit_is_a_fault_and_the_batches_before_it_are_good(data: st.DataObject) -> None:
    good, last = batches((0, 2, 1)), bytearray(batches((3, 2, 1)))
    at = data.draw(st.integers(MAGIC_AT, len(last) - 1))
    last[at] ^= 1 << data.draw(st.integers(0, 7))
    run = checked(good + last)
    assert run.fault
    assert (bytes(run.view), run.end_offset, len(run.rest)) == (good, 2, 0)


@pytest.mark.parametrize(
    ("records", "end", "expected"),
    [
        (batches((0, 3, 1), (3, 1, 1)), 0, None),
        (batches((0, 3, 1), (4, 1, 1)), 0, 3),
        (batches((5, 1, 1)), 4, 4),
        (bytes(gap_batch(Offset(4), Offset(5), Epoch(1))), 4, 4),
        (b"", 4, None),
    ],
)
def test_first_gap_is_the_first_offset_without_a_record(
    records: bytes, end: int, expected: int | None
) -> None:
    assert checked(records, end).first_gap == expected


def test_run_of_one_batch_is_what_the_check_makes_of_it() -> None:
    for batch in (batches((4, 2, 1)), bytes(gap_batch(Offset(4), Offset(5), Epoch(1)))):
        view = memoryview(batch)
        run = checked(batch, end=4)
        one = run_of_one(read_header(view), view)
        assert (one, len(one.rest)) == (run, 0)


def test_only_one_very_large_batch_takes_long() -> None:
    large = batch_of([(b"k", bytes(1 << 20))])
    assert takes_long(memoryview(large + batches((1, 1, 1))))
    assert not takes_long(memoryview(batches((0, 1, 1)) + large))
    assert not takes_long(memoryview(bytes(3)))
    assert run_of(large).end_offset == 1
