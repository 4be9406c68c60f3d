"""What a stream may change of a table's columns; without Spark."""

from __future__ import annotations

import enum
import json
from collections.abc import Collection
from typing import Any

from pipeline.offsets.cut import REWRITE_HINT, TableRefused
from pipeline.tables.payload_options import Envelope, Payload, PayloadFormat
from schemas.avro_schema import column_defaults, record_of_fields
from schemas.outcomes import UnsupportedSchema


class Evolution(enum.StrEnum):
    """What happens if the values have columns that the table lacks."""

    STRICT = "strict"
    """The job ends, and nothing is written."""
    ADD = "add"
    """They are added, in the commit of the rows that have them; they are null in all other rows. So a
    column with a default, which those rows should have, ends the job."""


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
