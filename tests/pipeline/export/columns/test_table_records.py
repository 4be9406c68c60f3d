"""Maxwell's records as rows of an export."""

from __future__ import annotations

import pyarrow as pa
import pytest

from pipeline.export.columns.table_records import NoRowKey, rows_of_table, type_in
from pipeline.tables.payload_options import PayloadFormat
from pipeline.tables.source_table import NO_PRIMARY_KEY, SourceTable
from tests.pipeline.export.columns.reading import reasons, rows_read
from tests.pipeline.maxwell_transcript import (
    CUSTOMERS,
    JOURNAL,
    KEY,
    OBJECT_KEYS,
    ORDERS,
    payload_of,
    transcript,
)

KEYS = [key for *_, key, _ in transcript(OBJECT_KEYS)]
VALUES = [value for *_, value in transcript(OBJECT_KEYS)]


def rows_of(table: SourceTable, *, until: int = len(KEYS)) -> list[int]:
    keys, values = pa.array(KEYS[:until], pa.binary()), pa.array(VALUES[:until], pa.binary())
    found: list[int] = rows_of_table(keys, values, table).to_pylist()
    return found


def test_only_the_rows_of_the_table_are_left() -> None:
    assert rows_of(ORDERS) == [0, 1, 2, 3, 4, 5, 11, 12, 13, 14, 15, 17]
    assert rows_of(CUSTOMERS) == [6, 7, 8, 9]
    assert rows_of(JOURNAL, until=10) == []


def test_a_row_of_a_table_without_a_primary_key_is_named() -> None:
    with pytest.raises(NoRowKey, match=NO_PRIMARY_KEY) as refused:
        rows_of(JOURNAL)
    assert refused.value.row == 10


def test_an_event_leaves_its_row_or_deletes_it() -> None:
    kept = rows_of(ORDERS)
    payload = payload_of(key_format=PayloadFormat.JSON, key_schema=KEY)
    read = rows_read(payload, [VALUES[at] for at in kept], [KEYS[at] or b"" for at in kept])
    assert read.refused == ()
    deleted = [at for at, gone in zip(kept, read.deletes, strict=True) if gone]
    assert deleted == [4, 11], "a delete, and the begin of a bootstrap"
    last = read.columns.to_pylist()[-1]
    assert (last["key"]["pk.id"], last["id"], last["city"]) == (5, 5, "Bern")


def test_a_value_that_is_no_event_of_maxwell_is_refused() -> None:
    unknown = "an event with type=upsert is not known here"
    said = reasons(payload_of(), b'{"type":"upsert","data":{}}', b'{"type":"insert"}', b"{}", b"no")
    no_event = "the value is no event of Maxwell of this schema"
    no_row = "an event leaves a row, and has none in `data`"
    assert said == [unknown, no_row, no_event, no_event]


@pytest.mark.parametrize(
    "value", [None, b"", b"no json", b"7", b"{}", b'{"type":7}', b"[" * 100_000]
)
def test_a_value_without_a_type_has_none(value: bytes | None) -> None:
    assert type_in(value) is None
