"""The log line of a sweep for expired values."""

from __future__ import annotations

from cleaner.rules.due_ranges import DueRange
from cleaner.rules.expiry import NEVER
from cleaner.rules.expiry_report import ExpiryReport

REPORT = ExpiryReport(
    topic="t",
    partition=0,
    end_offset=1,
    expired=2,
    tombstones=1,
    deferred=1,
    unreadable=1,
    bytes_read=2_000_000,
    seconds=2.0,
    ranges=(DueRange(0, 5, 700, 1), DueRange(5, 9, 600, 1)),
)


def test_it_says_what_a_sweep_has_found_and_left() -> None:
    assert str(REPORT) == (
        "t-0: found 2 expired values, appended 1 tombstone; read 2.0 MB in 2.0 s;"
        " 1 left to the next sweep; 1 value with an unreadable time to live"
    )


def test_the_next_moment_is_the_first_of_all_ranges() -> None:
    assert REPORT.due_ms == 600
    assert ExpiryReport(
        topic="t", partition=0, end_offset=0, expired=0, tombstones=0, deferred=0, unreadable=0,
        bytes_read=0, seconds=0.0,
    ).due_ms == NEVER  # fmt: skip
