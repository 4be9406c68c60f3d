"""What an Avro schema says of a table's columns besides their types: defaults and former names."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from pipeline.offsets.cut import REWRITE_HINT, TableRefused
from pipeline.tables.payload_options import Envelope, Payload, PayloadFormat
from schemas.avro_schema import (
    column_aliases,
    column_defaults,
    record_of_fields,
    with_aliases,
)
from schemas.outcomes import UnsupportedSchema


def refuse_defaults(table: Collection[str], rows: Collection[str], payload: Payload) -> None:
    """Raise TableRefused if a column is to be added with a default that earlier rows would lack.

    Args:
        table: the columns of the table.
        rows: those of the new rows.
    """
    defaults, former = defaults_of(payload), former_names(payload)
    for name in sorted(defaults.keys() & (set(rows) - set(table))):
        if not set(table).isdisjoint(former.get(name, ())):
            continue
        raise TableRefused(
            f"column {name} is new and has the default {json.dumps(defaults[name])} in --value-schema,"
            f" which earlier rows would lack; {REWRITE_HINT}"
        )


def defaults_of(payload: Payload) -> dict[str, Any]:
    """Returns the defaults of columns that are not null. Only Avro has any."""
    return _said_by_schema(payload, column_defaults)


def former_names(payload: Payload) -> Mapping[str, Sequence[str]]:
    """Returns the aliases of columns. Only Avro has any, and only for columns that are fields."""
    return {} if payload.select else _said_by_schema(payload, column_aliases)


def _said_by_schema(payload: Payload, read: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    if payload.value_format is not PayloadFormat.AVRO or payload.value_schema is None:
        return {}
    try:
        if payload.envelope is Envelope.DEBEZIUM:
            event = record_of_fields(payload.value_schema, ("after",))
            return read(event, within="after")
        return read(payload.value_schema)
    except UnsupportedSchema:
        return {}


def with_former_names(schema: str, envelope: Envelope, renamed: Mapping[str, str]) -> str:
    """Returns --value-schema, in which columns have the names as aliases that they had before.

    Args:
        renamed: the new name by the old one.

    Raises:
        TableRefused: the schema has no such column.
    """
    aliases = {new: [old for old in renamed if renamed[old] == new] for new in renamed.values()}
    try:
        within = "after" if envelope is Envelope.DEBEZIUM else None
        return with_aliases(schema, aliases, within=within)
    except UnsupportedSchema as error:
        raise TableRefused(f"--renamed does not fit --value-schema: {error}") from error
