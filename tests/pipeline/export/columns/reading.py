"""Keys and values for a row reader, and what it makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from pipeline.export.columns.reader import RowReader, RowsRead
from pipeline.tables.payload_options import Payload


def rows_read(
    payload: Payload,
    values: Sequence[bytes | None],
    keys: Sequence[bytes] | None = None,
    table_columns: pa.Schema | None = None,
) -> RowsRead:
    """Returns what a reader makes of records. Without keys each has one of its own."""
    keys = [b"k%d" % at for at in range(len(values))] if keys is None else keys
    reader = RowReader(payload, table_columns)
    found = reader.read(pa.array(keys, pa.binary()), pa.array(values, pa.binary()))
    assert found.columns.schema == reader.schema
    found.columns.validate(full=True)
    return found


def rows(payload: Payload, *values: bytes | None) -> list[dict[str, Any]]:
    """Returns the value columns of each row. None may be refused."""
    found = rows_read(payload, values)
    assert found.refused == ()
    return [
        {name: each for name, each in row.items() if name != payload.key_column}
        for row in found.columns.to_pylist()
    ]


def reasons(payload: Payload, *values: bytes | None) -> list[str | None]:
    """Returns why each value is refused; None if it is not."""
    found = rows_read(payload, values)
    assert not any(each.is_key for each in found.refused)
    said = {each.row: each.reason for each in found.refused}
    columns = found.columns.columns[1:]
    assert all(not column[row].is_valid for row in said for column in columns)
    return [said.get(row) for row in range(len(values))]
