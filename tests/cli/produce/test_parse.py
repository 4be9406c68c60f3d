"""Parsing of input lines to records."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.base.record_text import json_line
from cli.produce.parse import BadLine, NewRecord, TextFormat, parse_separator, read_json


@dataclass(frozen=True)
class Read:
    """Returns a record in the form that a consumer gets."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


DATA = st.none() | st.binary(max_size=20)


@pytest.mark.parametrize(
    ("form", "line", "key", "value"),
    [
        pytest.param(TextFormat(), b"a:b", None, b"a:b", id="value"),
        pytest.param(TextFormat(separator=b":"), b"a:b:c", b"a", b"b:c", id="key_and_value"),
        pytest.param(TextFormat(separator=b":"), b":", b"", b"", id="both_empty"),
        pytest.param(TextFormat(separator=b"\t"), b"\xff\t\0", b"\xff", b"\0", id="any_bytes"),
        pytest.param(TextFormat(key=b"k"), b"v", b"k", b"v", id="one_key"),
        pytest.param(TextFormat(is_keys=True), b"k", b"k", None, id="tombstone"),
        pytest.param(
            TextFormat(separator=b":", null_value=b"NULL"), b"k:NULL", b"k", None, id="null"
        ),
        pytest.param(
            TextFormat(separator=b":", null_value=b"NULL"), b"k:NULLS", b"k", b"NULLS", id="no_null"
        ),
        pytest.param(TextFormat(null_value=b""), b"", None, None, id="empty_is_null"),
    ],
)
def test_a_line_of_text(
    form: TextFormat, line: bytes, key: bytes | None, value: bytes | None
) -> None:
    assert form.read(line) == NewRecord(key=key, value=value)


def test_a_line_without_the_separator_is_no_record() -> None:
    with pytest.raises(BadLine, match="there is no separator '='"):
        TextFormat(separator=b"=").read(b"a:b")


@given(
    DATA, DATA, st.lists(st.tuples(st.text(max_size=5), DATA), max_size=3), st.integers(0, 1 << 50)
)
def test_what_consume_prints_is_read_back(
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]],
    timestamp: int,
) -> None:
    read = Read(3, 17, timestamp, key, value, tuple(headers))

    assert read_json(json_line("orders")(read)) == NewRecord(
        key=key, value=value, headers=tuple(headers), timestamp_ms=timestamp
    )


def test_headers_may_be_an_object_of_texts() -> None:
    assert read_json(b'{"value": "v", "headers": {"a": "b", "c": null}}') == NewRecord(
        key=None, value=b"v", headers=(("a", b"b"), ("c", None))
    )


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("{", "not valid JSON"),
        ("[]", "not a JSON object"),
        ({"payload": "x"}, "unknown member payload"),
        ({"value": {"a": 1}}, "value must be text or null"),
        ({"key": "a", "key_base64": "YQ=="}, "key is given twice"),
        ({"key_base64": "?"}, "key_base64 is not valid base64"),
        ({"key_base64": 1}, "key_base64 is not valid base64"),
        ({"headers": "a"}, "headers must be"),
        ({"headers": [{"value": "a"}]}, "headers must be"),
        ({"timestamp": "now"}, "timestamp must be a whole number"),
    ],
)
def test_what_is_no_record_is_told_with_its_reason(row: object, reason: str) -> None:
    line = row if isinstance(row, str) else json.dumps(row)

    with pytest.raises(BadLine, match=reason):
        read_json(line.encode())


def test_a_separator_may_be_written_as_an_escape() -> None:
    assert [parse_separator(text) for text in ("\\t", "\\0", "::")] == [b"\t", b"\0", b"::"]
