"""Defaults of columns that a stream adds to a table; without Spark."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from pipeline.offsets.cut import REWRITE_HINT, TableRefused
from pipeline.tables.payload_options import Envelope, Payload, PayloadFormat
from schemas.avro_schema import column_defaults, record_of_fields
from schemas.outcomes import UnsupportedSchema


def refuse_defaults(added: Collection[str], payload: Payload) -> None:
    """Raise TableRefused if a column is to be added with a default that earlier rows would lack."""
    defaults = defaults_of(payload)
    for name in sorted(defaults.keys() & set(added)):
        raise TableRefused(
            f"column {name} is new and has the default {json.dumps(defaults[name])} in --value-schema,"
            f" which earlier rows would lack; {REWRITE_HINT}"
        )


def defaults_of(payload: Payload) -> dict[str, Any]:
    """Returns the defaults of columns that are not null. Only Avro has any."""
    if payload.value_format is not PayloadFormat.AVRO or payload.value_schema is None:
        return {}
    try:
        if payload.envelope is Envelope.DEBEZIUM:
            event = record_of_fields(payload.value_schema, ("after",))
            return column_defaults(event, within="after")
        return column_defaults(payload.value_schema)
    except UnsupportedSchema:
        return {}
