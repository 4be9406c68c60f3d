"""Reads change events: the row that an event leaves, and whether it deletes the row.

JSON of Debezium may have the event within {"schema": ..., "payload": the event}, as Connect's converter
writes it. A row with the placeholder of a value that the database did not send is not known.

The names of the fields are those of `pipeline/tables/events/event_fields.py`.
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
from pipeline.tables.events.event_fields import EVENTS, EventFields
from pipeline.tables.payload_options import Envelope, Payload, PayloadFormat
from schemas.avro_schema import record_of_fields
from schemas.outcomes import UnsupportedSchema

NOT_OF_EVENTS = "--value-schema is not that of an event of Debezium"


class Events:
    """Reads events. Any thread may call."""

    def __init__(self, decoder: Decoder, fields: EventFields, unavailable: str | None) -> None:
        """Raises TableRefused: the decoder's objects are no events.

        Args:
            decoder: its first two columns are the operation and the row; a third one is an event within.
            unavailable: the placeholder; None: there is none.
        """
        self._decoder, self._fields = decoder, fields
        self._placeholder = None if unavailable is None else Placeholder(unavailable)
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
            deletes[row] = op in self._fields.leaves_none
            why = self._why_no_row(op, after)
            if why is not None:
                whys[row] = why
            elif not deletes[row]:
                afters[row] = after
        return self._rows(afters, deletes, whys)

    def _rows(self, afters: list[Any], deletes: Any, whys: dict[int, str]) -> ValuesRead:
        rows, bad = columns_of(afters, self._row)
        whys = whys | dict.fromkeys(bad, self._fields.no_event)
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
        if self._placeholder is None:
            return found
        for field, column in zip(rows.type, rows.flatten(), strict=True):
            for row in np.flatnonzero(self._placeholder.found_in(column)).tolist():
                found.setdefault(row, _not_sent(field.name))
        return found

    def _why_no_row(self, op: str | None, after: Any) -> str | None:
        fields = self._fields
        if op is None:
            return fields.no_event
        if op in fields.leaves_none:
            return None
        if op not in fields.leaves_row:
            return op.join(fields.unknown)
        return fields.no_row if after is None else None


def _not_sent(name: str) -> str:
    return (
        f"the database did not send the value of {name}, which had not changed: "
        "let it send whole rows (in PostgreSQL: REPLICA IDENTITY FULL)"
    )


def event_values(payload: Payload, table_columns: pa.Schema | None) -> Events:
    """Returns the reader of a topic's events. Raises TableRefused."""
    fields = EVENTS[payload.envelope]
    unavailable = payload.unavailable if payload.envelope is Envelope.DEBEZIUM else None
    if payload.value_format is PayloadFormat.AVRO:
        return Events(_in_avro(payload, fields), fields, unavailable)
    row = json_columns(payload, table_columns)
    event = [pa.field(fields.operation, pa.string()), pa.field(fields.row, row)]
    within = [pa.field("payload", pa.struct(event))] if fields.may_be_wrapped else []
    decoder = JsonDecoder(payload.value, pa.struct([*event, *within]), fields.no_event)
    return Events(decoder, fields, unavailable)


def _in_avro(payload: Payload, fields: EventFields) -> AvroDecoder:
    try:
        reader = record_of_fields(payload.value.schema or "", (fields.operation, fields.row))
    except UnsupportedSchema as error:
        raise TableRefused(f"{NOT_OF_EVENTS}: {error}") from error
    return AvroDecoder(payload.value, fields.no_event, reader)
