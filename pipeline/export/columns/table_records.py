"""The records of one table of a database, in a topic with those of several."""

from __future__ import annotations

import json

import pyarrow as pa

from pipeline.offsets.cut import TableRefused
from pipeline.tables.source_table import RowKey, SourceTable, is_row_of


def rows_of_table(
    keys: pa.BinaryArray, values: pa.BinaryArray, table: SourceTable
) -> pa.Int64Array:
    """Returns the indexes of a table's rows.

    Raises:
        NoRowKey: the key of one does not say which row it is.
    """
    found = []
    for row, (key, value) in enumerate(zip(keys, values, strict=True)):
        read = RowKey.read(key.as_py())
        event_type = None if read.has_columns else type_in(value.as_py())
        try:
            is_ours = is_row_of(table, read, event_type)
        except TableRefused as error:
            raise NoRowKey(row, str(error)) from error
        if is_ours:
            found.append(row)
    return pa.array(found, pa.int64())


class NoRowKey(TableRefused):
    """A record's key does not say which row it is."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(reason)
        self.row = row
        """Its index in the arrays."""


def type_in(value: bytes | None) -> str | None:
    """Returns the `type` of an event; None if it has none, or there is no event."""
    try:
        event = json.loads(value or b"")
    except (ValueError, RecursionError):
        return None
    found = event.get("type") if isinstance(event, dict) else None
    return found if isinstance(found, str) else None
