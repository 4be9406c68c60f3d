"""The output of `kompakt compact ...` for the broker's JSON."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cleaner.rules.fence import Fence
from cleaner.rules.report import PassReport
from cli.compact.history import print_history
from cli.compact.output import (
    print_cancelled,
    print_explanations,
    print_report,
    print_reports,
    print_status,
)
from cli.compact.undo import print_kept
from protocol.wire.numbers import Offset
from server.admin.compaction_json import fence_json, report_json

REPORT = PassReport(
    topic="orders",
    partition=0,
    reason="TOMBSTONES_DUE",
    start_offset=0,
    end_offset=161_314,
    planned_end_offset=161_314,
    bytes_read=36_700_000,
    bytes_written=4_900_000,
    bytes_before=12_200_000,
    bytes_after=766_800,
    records_before=161_314,
    records_after=10_000,
    records_by_verdict={
        "kept_latest": 10_000,
        "dropped_superseded": 151_313,
        "dropped_tombstone": 1,
    },
    bytes_untouched=2_000_000_000,
    sidecars_built=1,
    groups=1,
    segments_before=3,
    segments_after=1,
    segments_untouched=12,
    seconds=0.128,
)
FAILED = {
    "ended_ms": 0,
    "result": "failed",
    "topic": "orders",
    "partition": 1,
    "seconds": 0.01,
    "error": "segment 0.v1: the CRC of the batch at byte 71 differs",
}


def completed() -> dict[str, Any]:
    """Returns a pass in the form of the history."""
    return {**report_json(REPORT), "ended_ms": 1_795_279_808_607, "result": "completed"}


def status() -> dict[str, Any]:
    guard = {"is_enabled": True, "bytes_per_second": None, "quiet_p99_seconds": None}
    rates = dict.fromkeys(f"{each}_bytes_per_second" for each in ("total", "read", "write"))
    return {
        "threads": 1,
        "throttle": {**rates, "is_lifted_for_disk_pressure": False, "latency_guard": guard},
        "running": [],
        "queue_length": 0,
        "queue": [],
        "quarantined": [],
        "paused": {"everything_since_ms": None, "named": []},
        "last_passes_count": 3,
        "last_passes": [report_json(REPORT)],
    }


def test_a_report_shows_dropped_records_their_reasons_and_untouched_segments(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_report(report_json(REPORT))

    assert capsys.readouterr().out.splitlines() == [
        "orders-0: cleaned [0, 161314) in 128 ms, 12.2 MB -> 766.8 kB, 161,314 -> 10,000 records",
        "  superseded: 151,313 records dropped",
        "  tombstone: 1 record dropped",
        "  3 segments -> 1, 12 more (2.0 GB) left as they were; 1 key sidecar made",
        "  read 36.7 MB, wrote 4.9 MB",
    ]


def test_reports_of_many_partitions_are_a_table_and_a_sum(
    capsys: pytest.CaptureFixture[str],
) -> None:
    empty = replace(REPORT, end_offset=0, planned_end_offset=0, log_end_offset=0, groups=0)
    waiting = replace(empty, log_end_offset=5)
    parts = [replace(each, partition=n) for n, each in enumerate([REPORT] * 4 + [empty])]

    print_reports([report_json(each) for each in parts])

    titles, *rows, total = (line.split() for line in capsys.readouterr().out.splitlines())
    assert titles == ["partition", "took", "before", "after", "dropped", "why"]
    assert [row[0] for row in rows] == ["orders-0", "orders-1", "orders-2", "orders-3"]
    assert " ".join(total) == ("4 partitions cleaned, 48.8 MB -> 3.1 MB; 1 more, already clean")
    print_reports([report_json(empty)] * 5)
    assert capsys.readouterr().out == "5 partitions: already clean\n"
    print_reports([report_json(empty)] + [report_json(waiting)] * 4)
    assert capsys.readouterr().out == (
        "5 partitions: in 4 of them nothing can be cleaned now; kompakt compact explain says why\n"
    )


def test_a_clean_partition_is_distinguished_from_a_waiting_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clean = replace(REPORT, start_offset=9, planned_end_offset=9, log_end_offset=9, groups=0)

    print_report(report_json(clean))
    print_report(report_json(replace(clean, log_end_offset=12)))

    assert capsys.readouterr().out.splitlines() == [
        "orders-0: already clean",
        "orders-0: nothing can be cleaned now; kompakt compact explain orders-0 says why",
    ]


def test_the_history_fits_a_terminal_of_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    untouched = {**completed(), "groups": 0, "records_by_verdict": {}, "reason": "DIRTY"}
    print_history([completed(), untouched, FAILED], None)

    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        "ended (UTC)          partition    took   before     after  dropped  why",
        "2026-11-21 16:50:08  orders-0   128 ms  12.2 MB  766.8 kB  151,314  tombstones due",
        "2026-11-21 16:50:08  orders-0   128 ms        -         -        0  dirty",
        "1970-01-01 00:00:00  orders-1    10 ms                              failed",
        "1970-01-01 00:00:00  orders-1 failed: segment 0.v1: the CRC of the batch at byte 71 differs",
    ]


def test_an_empty_history_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    print_history([], "orders-7")
    print_history([], None)

    assert capsys.readouterr().out == (
        "no pass over orders-7 has ended yet\nno pass has ended yet\n"
    )


def test_the_status_says_how_many_passes_it_leaves_out(capsys: pytest.CaptureFixture[str]) -> None:
    print_status(status())

    told = capsys.readouterr().out
    assert told.startswith("1 thread; limits: none\nnothing is paused\nnothing is running\n")
    assert told.endswith(" and 2 more: see kompakt compact history TOPIC[-N]\n")


def test_the_status_shows_the_lease_of_another_process(capsys: pytest.CaptureFixture[str]) -> None:
    running = {
        "topic": "orders",
        "partition": 0,
        "task": "lease",
        "reason": "REQUESTED",
        "progress": {"bytes_planned": 0},
    }

    print_status({**status(), "running": [running]})

    assert "orders-0: leased to another process for cleaning (requested)" in capsys.readouterr().out


def test_an_explanation_says_what_decides_once_and_then_what_changes_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    findings = [
        {"obstacle": "active_segment", "text": "it is active", "remedy": "wait"},
        {"obstacle": "paused", "text": "it is paused", "remedy": "resume it"},
    ]
    told = {"text": "orders-0 is not being compacted: it is active", "findings": findings}

    print_explanations({"partitions": [told]})

    assert capsys.readouterr().out.splitlines() == [
        "orders-0 is not being compacted: it is active",
        "  1. active segment",
        "     -> wait",
        "  2. paused: it is paused",
        "     -> resume it",
    ]


def test_cancelled_tasks_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    tasks = [("clean", "DIRTY", True), ("dry-run", "REQUESTED", False)]
    cancelled = [
        {"topic": "orders", "partition": n, "task": task, "reason": reason, "was_running": runs}
        for n, (task, reason, runs) in enumerate(tasks)
    ]

    print_cancelled({"cancelled": cancelled})
    print_cancelled({"cancelled": []})

    assert capsys.readouterr().out.splitlines() == [
        "orders-0: stopped clean (dirty)",
        "orders-1: stopped dry run (requested), which had not begun",
        "nothing was running",
    ]


def test_a_report_says_which_older_values_stay(capsys: pytest.CaptureFixture[str]) -> None:
    history = replace(
        REPORT, history="the last 3 values", history_due_ms=1_795_279_808_607, sweeps=True
    )

    print_report(report_json(history))

    out = capsys.readouterr().out
    assert "keeps of each key: the last 3 values; the next older value may go at 2026-11-21" in out
    assert "judged the older values of all keys" in out


def kept_part(*passes: dict[str, Any], undo_ms: int = 3_600_000) -> dict[str, Any]:
    return {"topic": "orders", "partition": 0, "undo_ms": undo_ms, "passes": list(passes)}


def kept(number: int, refusal: str | None) -> dict[str, Any]:
    return {
        "number": number,
        "swapped_ms": 1_795_279_808_607,
        "until_ms": 1_795_283_408_607,
        "bytes": 12_200_000,
        "refusal": refusal,
    }


def test_passes_that_can_be_undone_are_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    print_kept({"partitions": [kept_part(kept(9, None), kept(7, "later passes first: 9"))]})

    titles, newest, older = capsys.readouterr().out.splitlines()
    assert titles.split()[:2] == ["partition", "pass"]
    assert newest.split()[:2] == ["orders-0", "9"]
    assert newest.rstrip().endswith("12.2 MB  now")
    assert older.rstrip().endswith("later passes first: 9")


def test_without_the_setting_no_pass_can_be_undone_and_it_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_kept({"partitions": [kept_part(undo_ms=0)]})
    print_kept({"partitions": [kept_part()] * 2})

    assert capsys.readouterr().out.splitlines() == [
        "no pass over orders-0 can be undone: compaction.undo.ms is 0, so passes keep nothing of what"
        " they replace",
        "no pass over the topic can be undone",
    ]


def test_the_history_names_the_command_that_undoes_a_pass(
    capsys: pytest.CaptureFixture[str],
) -> None:
    undo = {"until_ms": 1_795_283_408_607, "refusal": None}

    print_history([{**completed(), "undo_number": 9, "undo": undo}], "orders")

    assert capsys.readouterr().out.splitlines()[-1].endswith(": kompakt compact undo orders-0 9")


FENCE = Fence(
    base_offset=Offset(500),
    end_offset=Offset(900),
    file_version=7,
    size=2_000_000,
    reason="record batch at position 144: its CRC differs",
    since_ms=1_795_279_808_607,
)
FENCED = replace(REPORT, end_offset=500, fences=(FENCE,), end_behind_fences=161_314)


def test_a_report_names_the_damaged_segment_that_stays(capsys: pytest.CaptureFixture[str]) -> None:
    print_report(report_json(FENCED))

    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("orders-0: cleaned [0, 161314) in 128 ms, ")
    assert lines[3] == (
        "  the damaged segment with offsets [500, 900) (2.0 MB) stays as it is:"
        " record batch at position 144: its CRC differs"
    )


def test_a_log_with_nothing_but_a_damaged_segment_is_not_called_clean(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_report(report_json(replace(FENCED, start_offset=161_314, groups=0)))

    assert "already clean" not in capsys.readouterr().out


def test_the_history_names_damaged_segments_behind_its_table(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_history([{**completed(), **report_json(FENCED)}], None)

    assert (
        capsys.readouterr()
        .out.splitlines()[-1]
        .startswith(
            "2026-11-21 16:50:08  orders-0 the damaged segment with offsets [500, 900) (2.0 MB) stays"
        )
    )


def test_the_status_names_damaged_segments_and_since_when_they_are_known(
    capsys: pytest.CaptureFixture[str],
) -> None:
    fence = {"topic": "orders", "partition": 0, **fence_json(FENCE)}
    print_status({**status(), "fenced": [fence]})

    assert (
        "orders-0 has a damaged segment with offsets [500, 900), known since"
        " 2026-11-21 16:50:08 UTC, which stays as it is: record batch at position 144: its CRC differs\n"
    ) in capsys.readouterr().out


def test_the_queue_says_what_each_pass_would_free_or_that_it_is_not_known(
    capsys: pytest.CaptureFixture[str],
) -> None:
    known = {"bytes": 2000, "bytes_error": 100}
    waiting = {
        "topic": "orders",
        "partition": 0,
        "reason": "DIRTY",
        "dirty_ratio": 0.6,
        "dirty_bytes": 5000,
        "waited_ms": 60_000,
    }

    print_status(
        status() | {"queue_length": 2, "queue": [waiting, waiting | {"reclaimable": known}]}
    )

    lines = [line.split("  ") for line in capsys.readouterr().out.splitlines()]
    titles, unknown, counted = ([cell.strip() for cell in line if cell] for line in lines[4:7])
    assert titles == ["partition", "why", "dirty ratio", "dirty", "frees", "waited"]
    assert (unknown[-2], counted[-2]) == ("?", "2.0 kB ± 100 B")


def test_what_all_passes_would_free_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    known = {"partitions_count": 3, "bytes": 12_000_000, "bytes_error": 300_000}

    print_status(status() | {"reclaimable": known})
    lines = capsys.readouterr().out.splitlines()
    assert "passes would free about 12.0 MB ± 300.0 kB in 3 counted partitions" in lines
    print_status(status() | {"reclaimable": known | {"partitions_count": 0}})
    assert "passes would free" not in capsys.readouterr().out
