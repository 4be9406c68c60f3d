"""The batches of an answer: whole, intact, growing; a cut tail is left for the next answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.wire.errors import CorruptBatch
from protocol.wire.numbers import Epoch, Offset
from server.replication.runs import first_gap, whole_batches
from tests.harness.log_builder import batch_of

PAIR = [(b"k", b"v")]
MAGIC_AT = 16
"""Bytes up to here are not covered by the CRC: base offset, length, epoch, format."""


def run_of(*places: tuple[int, int, int]) -> bytes:
    """Returns batches at (base offset, records, epoch)."""
    return b"".join(
        batch_of(PAIR * count, base_offset=base, leader_epoch=epoch)
        for base, count, epoch in places
    )


def bases(run: bytes, end: int = 0, last_epoch: int = -1) -> list[int]:
    found = whole_batches(memoryview(run), end=Offset(end), last_epoch=Epoch(last_epoch))
    return [header.base_offset for header, _ in found]


def test_gaps_are_legal_and_what_is_there_already_is_left_out() -> None:
    run = run_of((0, 2, 1), (7, 1, 1), (20, 3, 4))
    assert bases(run) == [0, 7, 20]
    assert bases(run, end=2) == [7, 20]


def test_a_batch_that_is_cut_off_comes_with_the_next_answer() -> None:
    run = run_of((0, 2, 1), (7, 1, 1))
    for size in range(len(run)):
        assert bases(run[:size]) == ([0] if size >= len(run_of((0, 2, 1))) else [])


@pytest.mark.parametrize(
    ("run", "end", "last_epoch"),
    [
        (run_of((0, 3, 1)), 1, -1),  # It begins below the end and reaches beyond it.
        (run_of((5, 1, 1)), 5, 2),  # Its epoch falls.
        (run_of((0, 2, 1), (1, 2, 1)), 0, -1),
        (run_of((0, 1, 3), (1, 1, 2)), 0, -1),
    ],
)
def test_what_does_not_continue_the_log_is_refused(run: bytes, end: int, last_epoch: int) -> None:
    with pytest.raises(CorruptBatch, match="does not continue the log"):
        bases(run, end, last_epoch)


@given(data=st.data())
def test_a_changed_bit_is_found(data: st.DataObject) -> None:
    run = bytearray(run_of((3, 2, 1)))
    at = data.draw(st.integers(MAGIC_AT + 1, len(run) - 1))
    run[at] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(CorruptBatch):
        bases(bytes(run), 3)


@pytest.mark.parametrize(
    ("run", "end", "expected"),
    [
        (run_of((0, 3, 1), (3, 1, 1)), 0, None),
        (run_of((0, 3, 1), (4, 1, 1)), 0, 3),
        (run_of((5, 1, 1)), 4, 4),
        (b"", 4, None),
    ],
)
def test_the_first_gap(run: bytes, end: int, expected: int | None) -> None:
    assert first_gap(memoryview(run), end=Offset(end)) == expected
