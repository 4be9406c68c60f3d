"""Rows of records: what is null, what deletes its key, and what is refused."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

from pipeline.export.columns.reader import Refused, RowReader
from pipeline.offsets.cut import TableRefused
from pipeline.tables.payload_options import OnUnparsable, Payload, PayloadFormat
from tests.pipeline.export.columns.reading import reasons, rows, rows_read

JSON = Payload(value_format=PayloadFormat.JSON, value_schema="id INT, name STRING")
TEXT = Payload(
    value_format=PayloadFormat.STRING, key_format=PayloadFormat.STRING, key_column="name"
)


def test_bytes_are_the_default() -> None:
    found = rows_read(Payload(), [b"\xff", None])
    assert found.columns.to_pylist() == [
        {"key": b"k0", "value": b"\xff"},
        {"key": b"k1", "value": None},
    ]
    assert found.deletes.tolist() == [False, True]
    assert (found.refused, found.key_identity) == ((), None)


def test_text_is_text_and_other_bytes_are_refused() -> None:
    found = rows_read(TEXT, ["é".encode(), b"\xff", None, b""], [b"a", b"b", b"\xff", b"d"])
    assert found.columns.to_pylist() == [
        {"name": "a", "value": "é"},
        {"name": "b", "value": None},
        {"name": None, "value": None},
        {"name": "d", "value": ""},
    ]
    assert found.refused == (
        Refused(1, "the value is not string of this schema", is_key=False),
        Refused(2, "the key is no text", is_key=True),
    )
    assert (found.deletes.tolist(), found.key_identity) == ([False, False, True, False], None)


def test_fields_of_json_become_columns() -> None:
    assert rows(JSON, b'{"id": 7, "name": "x", "more": 1}', None, b"{}") == [
        {"id": 7, "name": "x"},
        {"id": None, "name": None},
        {"id": None, "name": None},
    ]


def test_json_that_does_not_fit_is_refused_and_other_rows_are_not() -> None:
    says = "the value is not json of this schema"
    values = [
        b'{"id": 1}',
        b'{"id": 7}x',
        b"no JSON",
        b'{"id": "text"}',
        b"null",
        None,
        b"",
        b"[1]",
    ]
    assert reasons(JSON, *values) == [None, says, says, says, says, None, says, says]


def test_a_key_and_its_value_may_both_be_refused() -> None:
    found = rows_read(TEXT, [b"v", b"\xff"], [b"a", b"\xff"])
    assert [(each.row, each.is_key) for each in found.refused] == [(1, True), (1, False)]


def test_no_records_are_no_rows() -> None:
    for payload in (Payload(), TEXT, JSON):
        found = rows_read(payload, [])
        assert (len(found.columns), found.refused, len(found.deletes)) == (0, (), 0)


def test_json_has_the_columns_of_the_table_without_another_schema() -> None:
    columns = pa.schema(
        [
            ("key", pa.large_binary()),
            ("id", pa.int64()),
            ("note", pa.large_string()),
            ("at", pa.timestamp("ns", tz="+00:00")),
            ("more", pa.large_list(pa.struct([("x", pa.string_view())]))),
            ("_unparsed", pa.binary()),
            *((name, pa.string()) for name in ("_topic", "_partition", "_offset", "_timestamp")),
        ]
    )
    payload = Payload(value_format=PayloadFormat.JSON)
    assert RowReader(payload, columns).schema == pa.schema(
        [
            ("key", pa.binary()),
            ("id", pa.int64()),
            ("note", pa.string()),
            ("at", pa.timestamp("us", tz="UTC")),
            ("more", pa.list_(pa.struct([("x", pa.string())]))),
        ]
    )
    with pytest.raises(TableRefused, match="the column u of the table has the type uint8"):
        RowReader(payload, pa.schema([("u", pa.uint8())]))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"value_format": PayloadFormat.JSON}, "values in json need --value-schema"),
        ({"value_format": PayloadFormat.JSON, "value_schema": "id INTT"}, "cannot be read"),
        ({"value_format": PayloadFormat.JSON, "value_schema": '`a"b` INT'}, "cannot be read"),
        ({"value_format": PayloadFormat.JSON, "value_schema": "a MAP<INT, INT>"}, "maps in json"),
        ({"value_format": PayloadFormat.JSON, "value_schema": "KEY INT"}, "two columns .* KEY"),
        ({"value_format": PayloadFormat.JSON, "value_schema": "_Offset INT"}, "two columns"),
        ({"key_column": "value"}, "two columns would be named value"),
        ({"key_column": "_unparsed", "on_unparsable": OnUnparsable.KEEP}, "two columns"),
        ({"value_format": PayloadFormat.AVRO, "value_schema": "{"}, "is no Avro schema"),
        ({"value_format": PayloadFormat.AVRO, "value_schema": '"nonsense"'}, "nonsense"),
    ],
)
def test_options_that_make_no_columns_are_one_sentence(
    settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(TableRefused, match=sentence) as refused:
        RowReader(Payload(**settings))
    assert "\n" not in str(refused.value)


def test_several_threads_read_at_once() -> None:
    reader = RowReader(JSON)
    keys = pa.array([b"k"] * 200, pa.binary())

    def read(number: int) -> set[int]:
        value = b'{"id": %d, "name": %d}' % (number, number)
        found = reader.read(keys, pa.array([value] * 200, pa.binary())).columns
        return {*found.column("id").to_pylist(), *map(int, found.column("name").to_pylist())}

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(read, range(40))) == [{number} for number in range(40)]
