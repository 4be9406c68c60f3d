"""The options for keys and values, from what a user has typed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cli.base.options import parse_pairs
from pipeline.offsets.cut import TableRefused
from pipeline.tables.avro_fields import with_former_names
from pipeline.tables.options import schema_text
from pipeline.tables.payload_options import (
    REGISTERED,
    OnTruncate,
    OnUnavailable,
    Payload,
    PayloadFormat,
)
from pipeline.tables.registry_options import ReaderSchema, reader_schema, registry_access
from pipeline.tables.source_table import SourceTable


def payload_of(said: Mapping[str, Any]) -> Payload:
    """Returns the options for keys and values. Asks the registry for subjects. Raises TableRefused."""
    registry = registry_access(said["schema_registry"], said["schema_registry_config"])

    def schema_of(part: str) -> ReaderSchema:
        text = schema_text(said[f"{part}_schema"])
        schema_type = REGISTERED.get(said[f"{part}_format"])
        return reader_schema(f"--{part}-schema", text, schema_type, registry)

    key, value = schema_of("key"), schema_of("value")
    renamed = parse_pairs("--renamed", said["renamed"])
    names = (
        "value_format",
        "envelope",
        "unavailable",
        "on_unparsable",
        "confluent_header",
        "key_format",
        "key_column",
        "on_missing_key",
    )
    return Payload(
        schema_ids=tuple(said["schema_id"] or ()),
        key_schema_ids=tuple(said["key_schema_id"] or ()),
        registry=registry,
        key_schema=key.text,
        key_message=key.message,
        value_schema=value_schema_of(value.text, said, renamed),
        value_message=value.message,
        source_table=SourceTable.parse(said["source_table"]) if said["source_table"] else None,
        select=tuple(said.get("select") or ()),
        where=said.get("where"),
        history=said.get("history", False),
        on_truncate=said.get("on_truncate", OnTruncate.STOP),
        on_unavailable=said.get("on_unavailable", OnUnavailable.FAIL),
        **{name: said[name] for name in names},
    )


def value_schema_of(
    schema: str | None, said: Mapping[str, Any], renamed: Mapping[str, str]
) -> str | None:
    """Returns --value-schema with the names that columns had before. Raises TableRefused."""
    if not renamed:
        return schema
    if said["value_format"] is not PayloadFormat.AVRO or schema is None:
        raise TableRefused("--renamed goes with values in Avro and --value-schema")
    return with_former_names(schema, said["envelope"], renamed)
