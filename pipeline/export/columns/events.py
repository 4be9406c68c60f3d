"""Reads the change events of Debezium: the row that an event leaves, and whether it deletes the row.

    c, r, u    the row is `after`: created, read by a snapshot, updated
    d          the row is gone

JSON may have the event within {"schema": ..., "payload": the event}, as Connect's converter writes it.
Of an event only `op` and `after` are read. A row with the placeholder of a value that the database did
not send is not known.

Source: Debezium's documentation, "Data change events".
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.export.columns.avro_decoder import AvroDecoder
from pipeline.export.columns.decoded import Decoder
from pipeline.export.columns.json_decoder import JsonDecoder
from pipeline.export.columns.placeholders import Placeholder
from pipeline.export.columns.shapes import MISFITS, Leaf, Struct, columns_of
from pipeline.export.columns.values import ValuesRead, json_columns
from pipeline.offsets.cut import TableRefused
from pipeline.tables.payload_options import Payload, PayloadFormat
from schemas.avro_schema import record_of_fields
from schemas.outcomes import UnsupportedSchema

DELETES = "d"
LEAVES_ROW = ("c", "r", "u")
NO_EVENT = "the value is no event of Debezium of this schema"
NO_ROW = "an event leaves a row, and has none in `after`"
NOT_OF_EVENTS = "--value-schema is not that of an event of Debezium"


class Events:
    """Reads events. Any thread may call."""

    def __init__(self, decoder: Decoder, unavailable: str) -> None:
        """Raises TableRefused: the decoder's objects are no events.

        Args:
            decoder: its first two columns are `op` and `after`; a third one is an event within.
            unavailable: the placeholder.
        """
        self._decoder, self._placeholder = decoder, Placeholder(unavailable)
        (_, self._op, op), (_, self._after, after), *more = decoder.shape.fields
        self._within = more[0][1] if more else None
        if not isinstance(op, Leaf) or not pa.types.is_string(op.type):
            raise TableRefused(f"{NOT_OF_EVENTS}: `op` is no text")
        if not isinstance(after, Struct):
            raise TableRefused(f"{NOT_OF_EVENTS}: `after` is no record")
        self._op_text, self._row = op.convert, after
        self.columns = after.type

    def read(self, values: pa.BinaryArray) -> ValuesRead:
        """Read a batch. Raises TableRefused: the registry does not answer."""
        decoded = self._decoder.decode(values.to_pylist())
        whys, deletes = decoded.whys, np.zeros(len(values), np.bool_)
        afters: list[Any] = [None] * len(values)
        for row, each in enumerate(decoded.objects):
            if each is None:
                deletes[row] = row not in whys
                continue
            event = self._event(each)
            op, after = self._text_of_op(event), self._after(event)
            deletes[row] = op == DELETES
            why = _why_no_row(op, after)
            if why is not None:
                whys[row] = why
            elif op != DELETES:
                afters[row] = after
        return self._rows(afters, deletes, whys)

    def _rows(self, afters: list[Any], deletes: Any, whys: dict[int, str]) -> ValuesRead:
        rows, bad = columns_of(afters, self._row)
        whys = whys | dict.fromkeys(bad, NO_EVENT)
        lacking = self._unavailable(rows)
        if lacking:
            kept = pa.array(
                [None if row in lacking else row for row in range(len(rows))], pa.int64()
            )
            rows = rows.take(kept)
        return ValuesRead(rows, deletes, whys | lacking)

    def _event(self, found: Any) -> Any:
        inner = None if self._within is None else self._within(found)
        return found if inner is None else inner

    def _text_of_op(self, event: Any) -> Any:
        op = self._op(event)
        if op is None or self._op_text is None:
            return op
        try:
            return self._op_text(op)
        except MISFITS:
            return None

    def _unavailable(self, rows: pa.StructArray) -> dict[int, str]:
        """Returns why rows are not known that have the placeholder, as clauses."""
        found: dict[int, str] = {}
        for field, column in zip(rows.type, rows.flatten(), strict=True):
            for row in np.flatnonzero(self._placeholder.found_in(column)).tolist():
                found.setdefault(row, _not_sent(field.name))
        return found


def _why_no_row(op: str | None, after: Any) -> str | None:
    if op is None:
        return NO_EVENT
    if op == DELETES:
        return None
    if op not in LEAVES_ROW:
        return f"an event with op={op} is not known here"
    return NO_ROW if after is None else None


def _not_sent(name: str) -> str:
    return (
        f"the database did not send the value of {name}, which had not changed: "
        "let it send whole rows (in PostgreSQL: REPLICA IDENTITY FULL)"
    )


def event_values(payload: Payload, table_columns: pa.Schema | None) -> Events:
    """Returns the reader of a topic's events. Raises TableRefused."""
    if payload.value_format is PayloadFormat.AVRO:
        return Events(_in_avro(payload), payload.unavailable)
    row = json_columns(payload, table_columns)
    event = [pa.field("op", pa.string()), pa.field("after", row)]
    within = pa.struct([*event, pa.field("payload", pa.struct(event))])
    return Events(JsonDecoder(payload.value, within, NO_EVENT), payload.unavailable)


def _in_avro(payload: Payload) -> AvroDecoder:
    try:
        reader = record_of_fields(payload.value.schema or "", ("op", "after"))
    except UnsupportedSchema as error:
        raise TableRefused(f"{NOT_OF_EVENTS}: {error}") from error
    return AvroDecoder(payload.value, NO_EVENT, reader)
