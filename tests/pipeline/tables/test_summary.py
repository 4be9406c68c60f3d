"""What a job prints at its end."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from pipeline.offsets.cut import Cut, TopicOffsets
from pipeline.tables.summary import Summary, show

SUMMARY = Summary(
    table="tables/orders",
    rows=1_200,
    has_values=False,
    files=1,
    size=345_678,
    records=90_000,
    micro_batches=3,
    seconds=30.0,
    behind=1,
    cut=Cut({"orders": {0: 90_001}}, {"orders": "id-1"}),
)


def test_people_read_what_the_table_has_and_what_the_run_did(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show(SUMMARY, as_json=False)
    assert capsys.readouterr().out == (
        "1,200 keys in tables/orders\n"
        "90,000 records read in 30.0 s (3,000 records/s, 3 micro-batches); 1 file of 345.7 kB;"
        " 1 offset behind\n"
    )
    nothing = replace(
        SUMMARY, rows=1, has_values=True, records=0, micro_batches=0, seconds=0.0, behind=None
    )
    show(nothing, as_json=False)
    assert capsys.readouterr().out == (
        "1 value in tables/orders\n"
        "0 records read in 0.0 s (0 records/s, 0 micro-batches); 1 file of 345.7 kB\n"
    )


def test_programs_read_json(capsys: pytest.CaptureFixture[str]) -> None:
    show(SUMMARY, as_json=True)
    assert json.loads(capsys.readouterr().out) == {
        "table": "tables/orders",
        "keys": 1_200,
        "files": 1,
        "bytes": 345_678,
        "records_read": 90_000,
        "micro_batches": 3,
        "seconds": 30.0,
        "offsets_behind": 1,
        "topics": {"orders": {"id": "id-1", "offsets": {"0": 90_001}}},
    }
    show(replace(SUMMARY, has_values=True), as_json=True)
    assert "values" in json.loads(capsys.readouterr().out)


def test_a_partition_that_the_table_does_not_hold_counts_from_its_first_offset() -> None:
    now = TopicOffsets({"a": "id"}, {"a": {0: 0, 1: 5}}, {"a": {0: 10, 1: 8}})
    assert now.behind(Cut({"a": {0: 4}}, {})) == 6 + 3
    assert now.behind(Cut({"a": {0: 10, 1: 9}}, {})) == 0
    assert now.behind(Cut({}, {})) == 13
