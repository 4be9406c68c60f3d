"""Decodes values in Avro, with fastavro.

fastavro ends the process at deep nesting, and holds the interpreter for as long as it decodes. So only
the decoding process imports this (`schemas/decoding_child.py`).
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import fastavro
import msgspec

from schemas.outcomes import BadValue, UnsupportedSchema
from schemas.schema import Schema
from schemas.wire_header import HEADER_BYTES

WHOLE, FIELD = "KompaktValue", "value"


def avro_decoder(schema: Schema) -> Callable[[bytes], bytes]:
    """Returns the function that decodes values of a schema to JSON. Raises UnsupportedSchema."""
    parsed = _parsed(schema)

    def decode(data: bytes) -> bytes:
        stream = io.BytesIO(data)
        stream.seek(HEADER_BYTES)
        value = fastavro.schemaless_reader(stream, parsed, None)[FIELD]
        if stream.tell() != len(data):
            raise BadValue(f"more follows the value: {len(data) - stream.tell()} bytes")
        # The library's dates, decimals and UUIDs become text, and bytes become base64.
        return msgspec.json.encode(value)

    return decode


def _parsed(schema: Schema) -> Any:
    """Returns a record with one field of the schema's type: it has the same bytes.

    fastavro knows the types that a schema refers to only if the schema is a record.
    """
    named: dict[str, Any] = {}
    try:
        for each in schema.references:
            fastavro.parse_schema(_read(each.text), named)
        fields = [{"name": FIELD, "type": _read(schema.text)}]
        return fastavro.parse_schema({"type": "record", "name": WHOLE, "fields": fields}, named)
    except (
        fastavro.schema.SchemaParseException,
        msgspec.DecodeError,
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        RecursionError,
    ) as error:
        raise UnsupportedSchema(f"it is no Avro schema: {type(error).__name__}: {error}") from error


def _read(text: str) -> Any:
    """Returns a schema as Python values; the name of a type may stand there without quotes."""
    return text.strip() if text.strip().isidentifier() else msgspec.json.decode(text)
