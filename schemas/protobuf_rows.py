"""Messages of Protobuf as rows: their fields as JSON with numbers, and their columns as DDL.

Protobuf's JSON mapping has integers of 64 bits as text. Who reads JSON by a schema, such as Spark, wants
numbers.

    double, float             DOUBLE, FLOAT     bytes                  BINARY, base64 in JSON
    32 bits, signed           INT               enum, Duration         STRING
    32 bits without a sign    BIGINT            Timestamp              TIMESTAMP
    64 bits, signed           BIGINT            a message              STRUCT
    64 bits without a sign    DECIMAL(20, 0)    a map                  MAP, its keys STRING
    bool, string              BOOLEAN, STRING   Int64Value and others  as the value
                                                other google.protobuf  STRING, with JSON inside
"""

from __future__ import annotations

from typing import Any

import msgspec
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from schemas.outcomes import BadValue, UnsupportedSchema
from schemas.protobuf_values import Messages

LONG_FIELDS = (FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64)
MESSAGE = FieldDescriptor.CPPTYPE_MESSAGE
GOOGLES = "google.protobuf."
LONG_WRAPPERS = (f"{GOOGLES}Int64Value", f"{GOOGLES}UInt64Value")
TYPES = {
    FieldDescriptor.CPPTYPE_INT32: "INT",
    FieldDescriptor.CPPTYPE_UINT32: "BIGINT",
    FieldDescriptor.CPPTYPE_INT64: "BIGINT",
    FieldDescriptor.CPPTYPE_UINT64: "DECIMAL(20, 0)",
    FieldDescriptor.CPPTYPE_DOUBLE: "DOUBLE",
    FieldDescriptor.CPPTYPE_FLOAT: "FLOAT",
    FieldDescriptor.CPPTYPE_BOOL: "BOOLEAN",
    FieldDescriptor.CPPTYPE_ENUM: "STRING",
}
WELL_KNOWN = {
    "Timestamp": "TIMESTAMP",
    "DoubleValue": "DOUBLE",
    "FloatValue": "FLOAT",
    "Int32Value": "INT",
    "UInt32Value": "BIGINT",
    "Int64Value": "BIGINT",
    "UInt64Value": "DECIMAL(20, 0)",
    "BoolValue": "BOOLEAN",
    "BytesValue": "BINARY",
}
NESTED_MAX = 50


def row_json(messages: Messages, data: bytes, expected: str | None) -> bytes:
    """Returns a value as JSON with numbers.

    Args:
        expected: the full name that the message must have; None: any.

    Raises:
        BadValue: it is no message of the schema, or another one.
    """
    descriptor, found = messages.read(data)
    if expected is not None and descriptor.full_name != expected:
        raise BadValue(f"it is a {descriptor.full_name}, and no {expected}")
    _widen(found, descriptor)
    return msgspec.json.encode(found)


def columns_ddl(descriptor: Descriptor) -> str:
    """Returns the columns of a message, as Spark's DDL. Raises UnsupportedSchema: it contains itself."""
    return _fields(descriptor, " ", 0)


def _fields(descriptor: Descriptor, separator: str, depth: int) -> str:
    if depth > NESTED_MAX:
        raise UnsupportedSchema(f"{descriptor.full_name} contains itself, or is nested too deeply")
    return ", ".join(
        f"`{each.name}`{separator}{_type_of(each, depth)}" for each in descriptor.fields
    )


def _type_of(field: FieldDescriptor, depth: int) -> str:
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        return f"MAP<STRING, {_single_type(entry.fields_by_name['value'], depth)}>"
    single = _single_type(field, depth)
    return f"ARRAY<{single}>" if field.is_repeated else single


def _single_type(field: FieldDescriptor, depth: int) -> str:
    if field.type == FieldDescriptor.TYPE_BYTES:
        return "BINARY"
    if field.cpp_type != MESSAGE:
        return TYPES.get(field.cpp_type, "STRING")
    name = field.message_type.full_name
    if name.startswith(GOOGLES):
        return WELL_KNOWN.get(name.removeprefix(GOOGLES), "STRING")
    return f"STRUCT<{_fields(field.message_type, ': ', depth + 1)}>"


def _widen(found: dict[str, Any], descriptor: Descriptor) -> None:
    """Turn the text of long numbers into numbers, in all fields."""
    for field in descriptor.fields:
        if field.name in found:
            found[field.name] = _widened(found[field.name], field)


def _widened(value: Any, field: FieldDescriptor) -> Any:
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        of = entry.fields_by_name["value"]
        return {key: _single_widened(each, of) for key, each in value.items()}
    if field.is_repeated:
        return [_single_widened(each, field) for each in value]
    return _single_widened(value, field)


def _single_widened(value: Any, field: FieldDescriptor) -> Any:
    if field.cpp_type in LONG_FIELDS:
        return int(value)
    if field.cpp_type == MESSAGE:
        name = field.message_type.full_name
        if name in LONG_WRAPPERS:
            return int(value)
        if not name.startswith(GOOGLES):
            _widen(value, field.message_type)
    return value
