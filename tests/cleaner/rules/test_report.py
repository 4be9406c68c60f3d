"""The pass report: its log line."""

from __future__ import annotations

from dataclasses import replace

from cleaner.rules.fence import Fence
from cleaner.rules.report import PassReport
from protocol.wire.numbers import Offset

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
    groups=1,
    segments_before=5,
    segments_after=1,
    segments_untouched=2,
    bytes_untouched=2_000_000_000,
    sidecars_built=1,
    parts=4,
    dirty_ratio=0.75,
    seconds=2.13,
    throttled_seconds=0.5,
    is_verified=True,
    verify_seconds=0.21,
)


def test_the_log_line_says_what_an_operator_wants_to_know() -> None:
    """The log, the reason, the result, the records dropped and kept by verdict, and the cost."""
    assert str(REPORT) == (
        "orders-3: cleaned [1200, 98000), 412.0 MB -> 37.0 MB, 5 segments -> 1"
        " (dirty, dirty ratio 0.75);"
        " dropped 907 superseded, 3 tombstone; kept 90 latest;"
        " read 824.0 MB, wrote 37.0 MB in 2.1 s, 210 ms of it to verify, throttled for 500 ms;"
        " 2 segments (2.0 GB) left as they were; 1 key sidecar made; keys mapped in 4 parts"
    )


def test_the_log_line_says_that_a_pass_was_not_verified() -> None:
    assert "in 2.1 s, not verified, throttled for 500 ms;" in str(
        replace(REPORT, is_verified=False)
    )


def test_the_log_line_of_a_pass_that_read_no_record_says_so() -> None:
    report = replace(REPORT, records_before=0, records_by_verdict={})

    assert "dropped none; kept none;" in str(report)


def test_the_log_line_of_a_pass_that_rewrote_nothing_says_so_and_no_more() -> None:
    report = replace(
        REPORT, groups=0, segments_untouched=0, sidecars_built=0, parts=1, throttled_seconds=0.0
    )

    assert str(report).startswith("orders-3: cleaned [1200, 98000), nothing rewritten (dirty, ")
    assert str(report).endswith(" in 2.1 s, 210 ms of it to verify")


def test_the_log_line_names_damaged_segments_and_up_to_where_the_rest_was_cleaned() -> None:
    fences = tuple(
        Fence(
            base_offset=Offset(start),
            end_offset=Offset(start + 10),
            file_version=1,
            size=100,
            reason=f"CRC differs at {start}",
            since_ms=7,
        )
        for start in (1200, 1300, 1400, 1500)
    )
    report = replace(REPORT, end_offset=1200, fences=fences, end_behind_fences=98000)

    assert str(report).startswith("orders-3: cleaned [1200, 98000), ")
    assert (
        "; cleaned around 4 damaged segments, which stay as they are: CRC differs at 1200;"
        " CRC differs at 1300; CRC differs at 1400;"
    ) in str(report)
    assert report.fenced_bytes == 400
