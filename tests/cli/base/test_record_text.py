"""Records as lines: a terminal executes nothing in them, and a pipe gets their exact bytes."""

from __future__ import annotations

import pytest

from cli.base.record_text import TextFormat, cell_text, details_line
from cli.consume.latest_records import LatestRecord
from cli.consume.latest_table import LatestTable

ESCAPE = b"\x1b]0;owned\x07"


def record(key: bytes, value: bytes | None) -> LatestRecord:
    return LatestRecord(1, key, 42, 1_767_225_600_000, value, (("h", b"x"),))  # type: ignore[arg-type]


def text(*, is_hex: bool = False, is_for_terminal: bool = False) -> TextFormat:
    return TextFormat(
        separator=b"=", null=b"(null)", is_hex=is_hex, is_for_terminal=is_for_terminal
    )


def test_a_pipe_gets_the_bytes_as_they_are() -> None:
    assert text().line(record(b"\xff", ESCAPE)) == b"\xff=" + ESCAPE
    assert text(is_hex=True).line(record(b"\xff", b"a")) == b"ff=61"
    assert text().line(record(b"k", None)) == b"k=(null)"


@pytest.mark.parametrize("hostile", [ESCAPE, b"\xff\x1b", b"a\rb", b"a\nb"])
def test_a_terminal_gets_nothing_to_obey(hostile: bytes) -> None:
    each = record(hostile, hostile)
    lines = [
        text(is_for_terminal=True).line(each),
        details_line(each),
        LatestTable(key_bytes_max=9).line(each),
    ]

    assert all(line.decode().isprintable() for line in lines)


def test_details_tell_all_that_is_known() -> None:
    assert details_line(record(b"k", b"v")) == (
        b'1:42  2026-01-01 00:00:00.000Z  "k" = "v"  [h="x"]'
    )


def test_a_row_of_the_table_is_as_wide_as_its_key_needs() -> None:
    table = LatestTable(key_bytes_max=5)

    assert table.titles == b"part:offset   time (UTC)           key    value"
    assert table.line(record(b"alice", b"2")) == b"1:42          2026-01-01 00:00:00  alice  2"
    assert table.line(record(b"alice", None)).endswith(b"alice  (deleted)")


def test_a_cell_cuts_what_is_very_long() -> None:
    assert cell_text(b"x" * 5000) == "x" * 200 + " ... (5,000 bytes)"


def test_no_value_looks_like_no_text_that_a_client_may_have_written() -> None:
    tombstone, json_null = details_line(record(b"k", None)), details_line(record(b"k", b"null"))

    assert b' "k" = (null)  ' in tombstone
    assert b' "k" = "null"  ' in json_null
    assert (cell_text(None), cell_text(b"null")) == ("(null)", "null")
