"""Which records are rows of a table whose changes Maxwell writes."""

from __future__ import annotations

import json

import pytest

from pipeline.offsets.cut import TableRefused
from pipeline.tables.source_table import (
    NO_PRIMARY_KEY,
    NOT_MAXWELLS,
    RowKey,
    SourceTable,
    is_row_of,
)
from tests.pipeline.maxwell_transcript import (
    ARRAY_KEYS,
    CUSTOMERS,
    JOURNAL,
    OBJECT_KEYS,
    ORDERS,
    transcript,
)

NO_KEYS = [
    b"", b"7", b"null", b"\xff", b'"shop"', b"{}", b"[]", b'{"database":"shop"}', b'["shop"]',
    b"3ca28f3d-d050-4ad0-8bba-2ebdb326278d", b"[" * 100_000,
]  # fmt: skip
"""Keys that name no table."""


def offsets(name: str, table: SourceTable) -> list[int]:
    return [
        offset
        for _, _, offset, _, key, value in transcript(name)
        if is_row_of(table, RowKey.read(key or b""), json.loads(value or b"{}")["type"])
    ]


def test_rows_of_the_table_are_told_from_those_of_others_and_from_changes_of_the_schema() -> None:
    assert offsets(OBJECT_KEYS, ORDERS) == [0, 1, 2, 3, 4, 5, 11, 12, 13, 14, 15, 17]
    assert offsets(OBJECT_KEYS, CUSTOMERS) == [6, 7, 8, 9]
    assert offsets(ARRAY_KEYS, ORDERS) == [0, 7]
    assert offsets(ARRAY_KEYS, CUSTOMERS) == [1, 8]


@pytest.mark.parametrize("name", [OBJECT_KEYS, ARRAY_KEYS])
def test_rows_of_a_table_without_a_primary_key_are_refused(name: str) -> None:
    with pytest.raises(TableRefused, match=NO_PRIMARY_KEY):
        offsets(name, JOURNAL)


@pytest.mark.parametrize("key", NO_KEYS, ids=lambda key: str(key[:40]))
def test_a_key_that_names_no_table_is_refused_unless_the_event_changes_a_schema(key: bytes) -> None:
    with pytest.raises(TableRefused, match=NOT_MAXWELLS):
        is_row_of(ORDERS, RowKey.read(key), "insert")
    with pytest.raises(TableRefused, match=NOT_MAXWELLS):
        is_row_of(ORDERS, RowKey.read(key), None)
    assert not is_row_of(ORDERS, RowKey.read(key), "table-alter")
    assert not is_row_of(ORDERS, RowKey.read(key), "database-drop")


def test_a_table_is_named_with_its_database() -> None:
    assert SourceTable.parse("shop.orders") == ORDERS
    assert SourceTable.parse("shop.orders.2026") == SourceTable("shop", "orders.2026")
    for text in ("orders", ".orders", "shop.", ""):
        with pytest.raises(TableRefused, match=r"--source-table must be DATABASE\.TABLE, not"):
            SourceTable.parse(text)
