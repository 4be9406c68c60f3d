"""A pass report: the log line and the shares it states."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cleaner.report import PassReport

REPORT = PassReport(
    topic="orders",
    partition=3,
    reason="DIRTY",
    start_offset=1200,
    end_offset=98_000,
    planned_end_offset=98_000,
    bytes_read=824_000_000,
    bytes_written=37_000_000,
    bytes_before=412_000_000,
    bytes_after=37_000_000,
    records_before=1000,
    records_after=90,
    records_by_verdict={
        "dropped_tombstone": 3,
        "dropped_superseded": 907,
        "kept_latest": 90,
        "kept_tail": 0,
    },
    dirty_ratio=0.75,
    seconds=2.13,
    throttled_seconds=0.5,
    is_verified=True,
    verify_seconds=0.21,
)


def test_the_log_line_says_what_an_operator_wants_to_know() -> None:
    """Where, why, what it came to, what died and what stayed and why, and what it cost."""
    assert str(REPORT) == (
        "orders-3: cleaned [1200, 98000) 412 MB -> 37 MB (dirty, 75% dirty);"
        " dropped 907 superseded, 3 tombstone; kept 90 latest;"
        " read 824 MB, wrote 37 MB in 2.1 s (0.2 s verifying, 0.5 s throttled)"
    )


def test_the_log_line_says_that_a_pass_was_not_verified() -> None:
    assert "(not verified, 0.5 s throttled)" in str(replace(REPORT, is_verified=False))


def test_the_log_line_of_a_pass_that_read_no_record_says_so() -> None:
    report = replace(REPORT, records_before=0, records_by_verdict={})

    assert "dropped none; kept none;" in str(report)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        pytest.param(0, "0 B", id="nothing"),
        pytest.param(999, "999 B", id="bytes"),
        pytest.param(61_000, "61 kB", id="kilobytes"),
        pytest.param(5_000_000_000, "5 GB", id="gigabytes"),
        pytest.param(2_500_000_000_000, "2.5 TB", id="terabytes"),
    ],
)
def test_sizes_are_told_in_a_unit_people_read(count: int, text: str) -> None:
    report = replace(REPORT, bytes_before=count)

    assert f") {text} -> 37 MB" in str(report)


def test_a_pass_that_ended_before_its_plan_is_partial() -> None:
    assert replace(REPORT, end_offset=50_000).is_partial
    assert not REPORT.is_partial
