"""The output of `kompakt compact keys` for the broker's JSON."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from cleaner.inspect.key_analysis import KeyAnalysis
from cleaner.keys.growth import DAY_MS
from cli.compact.keys import key_text, print_keys
from server.keys.key_json import keys_json, total_json
from tests.harness.compacted_log import CompactedLog
from tests.harness.key_model import analysis_of
from tests.harness.transactional_producer import TransactionalProducer


def growing_log() -> CompactedLog:
    """Returns a log with four keys, one of them new and one deleted in the two days since its pass."""
    log = CompactedLog()
    log.append_segment((b"a", b"1"), (b"b", b"1"), (b"c", b"1"))
    log.clean()
    log.append((b"d", b"1"), (b"a", b"2"), (b"b", None))
    log.now_ms += 2 * DAY_MS
    return log


def printed(
    capsys: pytest.CaptureFixture[str], analyses: Sequence[KeyAnalysis], *, has_total: bool = True
) -> list[str]:
    parts = [
        {"topic": "orders", "partition": number, "keys": keys_json(each)}
        for number, each in enumerate(analyses)
    ]
    print_keys(parts, total_json(analyses) if has_total else None)
    return capsys.readouterr().out.splitlines()


def test_counts_growth_and_a_forecast_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, [analysis_of(growing_log())])

    assert lines[1].split() == ["orders-0", "4", "3", "1", "6", "2", "53", "B"]
    assert [line.split()[:2] for line in lines[4:7]] == [["a", "2"], ["b", "2"], ["d", "1"]]
    assert any(line.split()[-1] == "(tombstone)" for line in lines)
    assert "tombstones: none in what passes have cleaned" in lines
    growth = lines[lines.index("growth since the last pass, or since the log began:") + 2].split()
    assert growth[:3] == ["orders-0", "2023-11-14", "22:13:20"]
    assert growth[3:] == ["3", "26", "B", "1", "+0", "0.1", "0.0", "+0.0"]
    assert "orders-0: new keys of the last 24.0 h: 0" in lines
    assert [line.split()[:3] for line in lines if " in " in line and "days" in line] == [
        ["orders-0", "in", "7"],
        ["orders-0", "in", "30"],
    ]


def test_several_partitions_have_a_row_for_all(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, [analysis_of(growing_log()), analysis_of(CompactedLog())])

    assert lines[3].split()[:3] == ["all", "4", "3"]
    assert lines[5].split()[:2] == ["partition", "key"]
    assert not any(line.startswith("orders-1: ") for line in lines), "it has no keys"


def test_without_all_partitions_there_is_no_total(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, [analysis_of(growing_log())], has_total=False)

    assert not any("hottest" in line for line in lines)


def test_what_counts_for_no_key_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    log = growing_log()
    producer = TransactionalProducer(log, 7)
    producer.send((b"x", b"1"), (b"y", b"1"))
    producer.abort()
    producer.send((b"z", b"1"))

    lines = printed(capsys, [analysis_of(log)])

    assert "orders-0: 2 records of aborted transactions left out" in lines
    assert "orders-0: 1 record of open transactions left out" in lines


def test_the_reason_is_told_where_nothing_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    log = growing_log()
    log.clean()

    lines = printed(capsys, [analysis_of(log)])

    expected = "orders-0: nothing is said about growth: nothing was appended since the last pass"
    assert expected in lines


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ({"key_hex": b"alice".hex(), "is_key_cut": False, "key_bytes": 5}, "alice"),
        ({"key_hex": "00ff", "is_key_cut": False, "key_bytes": 2}, "0x00ff"),
        ({"key_hex": b"a\n".hex(), "is_key_cut": False, "key_bytes": 2}, '"a\\n"'),
        ({"key_hex": b"long".hex(), "is_key_cut": True, "key_bytes": 4000}, "long... (4.0 kB)"),
        ({"key_hex": None, "is_key_cut": False}, "(its last record cannot be read)"),
    ],
)
def test_a_key_is_shown_as_text_if_it_is_that(key: dict[str, object], text: str) -> None:
    assert key_text(key) == text
