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
    records_by_verdict={"dropped_superseded": 910, "kept_latest": 90},
    seconds=2.13,
    is_verified=True,
    verify_seconds=0.21,
)


def test_the_log_line_names_partition_range_sizes_share_and_time() -> None:
    line = str(REPORT)

    assert line == (
        "orders-3: cleaned [1200, 98000) 412 MB -> 37 MB, 91 % superseded,"
        " 2.1 s (0.2 s of them verifying)"
    )


def test_the_log_line_says_that_a_pass_was_not_verified() -> None:
    assert str(replace(REPORT, is_verified=False)).endswith("2.1 s (not verified)")


def test_a_pass_that_read_no_record_superseded_none() -> None:
    report = replace(REPORT, records_before=0, records_by_verdict={})

    assert report.superseded_ratio() == 0.0


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
