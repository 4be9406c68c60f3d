"""Turns the keys and values of records into the columns of a table, as Spark's table jobs do.

    key        bytes, text, or what a record says, in a column that the user may name
    value      bytes or text: one column `value`; records: a column for each field

The columns have the names and types that Spark's jobs write, so that a stream can continue the table.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.export.columns.events import event_values
from pipeline.export.columns.keys import key_reader
from pipeline.export.columns.values import plain_values
from pipeline.tables.formats.column_names import ORIGIN, TOMBSTONE, UNPARSED, refuse_equal_names
from pipeline.tables.payload_options import Envelope, OnUnparsable, Payload


@dataclass(frozen=True, slots=True)
class Refused:
    """A key or a value that cannot be read."""

    row: int
    """Its index in the arrays."""
    reason: str
    """A clause, in the words of Spark's jobs."""
    is_key: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsRead:
    """A batch of records as rows of a table."""

    columns: pa.RecordBatch
    """A row for each record: the key column, null only if the key is refused; then the value columns,
    null where the record deletes its key or its value is refused."""
    deletes: npt.NDArray[np.bool_]
    """Which records delete their keys: their value is null, or an event that deletes the row."""
    refused: tuple[Refused, ...]
    """The keys and values that cannot be read, in the order of the rows, a key before its value. A null
    value is never among them."""
    key_identity: pa.BinaryArray | None
    """Bytes that are equal for two keys exactly if the keys are; null where the key is refused. None:
    keys are equal exactly if their own bytes are."""


class RowReader:
    """Reads keys and values by the user's options. Any thread may call."""

    def __init__(self, payload: Payload, table_columns: pa.Schema | None = None) -> None:
        """
        Args:
            table_columns: the columns of an existing table. Values in JSON have them if the user gives
                no schema.

        Raises:
            TableRefused: a schema is missing or cannot be used, or two columns would have one name.
        """
        is_event = payload.envelope is not Envelope.NONE
        self._keys = key_reader(payload.key)
        self._values = (event_values if is_event else plain_values)(payload, table_columns)
        key = pa.field(payload.key_column, self._keys.type)
        self._schema = pa.schema([key, *self._values.columns])
        kept = [UNPARSED] if payload.on_unparsable is OnUnparsable.KEEP else []
        refuse_equal_names([*self._schema.names, *kept, *ORIGIN, TOMBSTONE])

    @property
    def schema(self) -> pa.Schema:
        """The key column and the value columns, all nullable."""
        return self._schema

    def read(self, keys: pa.BinaryArray, values: pa.BinaryArray) -> RowsRead:
        """Returns the rows of records.

        Args:
            keys: none is null.
            values: as many; null in tombstones.

        Raises:
            TableRefused: the registry does not answer.
        """
        key, value = self._keys.read(keys), self._values.read(values)
        arrays = [key.column, *value.rows.flatten()]
        refused = [Refused(row, why, is_key=True) for row, why in key.whys.items()]
        refused += [Refused(row, why, is_key=False) for row, why in value.whys.items()]
        return RowsRead(
            columns=pa.RecordBatch.from_arrays(arrays, schema=self._schema),
            deletes=value.deletes,
            refused=tuple(sorted(refused, key=lambda each: (each.row, not each.is_key))),
            key_identity=key.identity,
        )
