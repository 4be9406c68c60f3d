"""Declarations: they say what Kafka's message schemas say, for every version that is served."""

from __future__ import annotations

import dataclasses
import types
import typing
import uuid
from typing import Any

import pytest

from protocol.messages.fetch import AbortedTransaction, EpochEndOffset, FetchPartition
from protocol.wire.api_keys import APIS
from protocol.wire.primitives import ZERO_UUID
from protocol.wire.schema import (
    NEVER,
    Kind,
    Message,
    NamedField,
    Payload,
    WireType,
    fields_of,
    part_size,
)
from tests.harness.messages import (
    Schema,
    has_kafka_schema,
    kafka_schema,
    message_types,
    snake_case,
    versions_of,
)

each_message = pytest.mark.parametrize(
    "message_type", [pytest.param(cls, id=cls.__name__) for cls in message_types()]
)

each_with_a_schema = pytest.mark.parametrize(
    "message_type",
    [pytest.param(cls, id=cls.__name__) for cls in message_types() if has_kafka_schema(cls)],
)

TWICE_IN_KAFKA = {
    "[]AskedTopic": "[]TopicData",
    "[]AskedPartition": "[]PartitionData",
    "[]EntryResult": "[]EntryData",
}
"""Our names where Kafka has the same one in a request and, for something else, in its response."""
PYTHON_TYPES: dict[str, Any] = {
    "bool": bool,
    "int8": int,
    "int16": int,
    "uint16": int,
    "int32": int,
    "int64": int,
    "float64": float,
    "uuid": uuid.UUID,
    "string": str,
    "bytes": Payload,
}
NO_VALUE = {"string": "", "bool": False, "uuid": ZERO_UUID}


@each_with_a_schema
def test_key_and_flexible_versions_are_kafkas(message_type: type[Message]) -> None:
    schema = kafka_schema(message_type)

    assert message_type.api_key == schema["apiKey"]
    assert message_type.versions[0] in versions_of(schema["validVersions"], last=99)
    assert message_type.versions[1] in versions_of(schema["validVersions"], last=99)
    flexible = message_type.flexible_since
    assert schema["flexibleVersions"] == ("none" if flexible == NEVER else f"{flexible}+")


@each_message
def test_table_and_declarations_agree(message_type: type[Message]) -> None:
    api = APIS[message_type.api_key]

    assert message_type.versions == (api.served_min, api.version_max)
    assert message_type.flexible_since == api.flexible_since


@each_with_a_schema
def test_fields_are_kafkas(message_type: type[Message]) -> None:
    """Names, order, types, versions, nullability, tags, defaults and ignorability."""
    low, high = message_type.versions
    compare(message_type, kafka_schema(message_type)["fields"], list(range(low, high + 1)))


def compare(declared: type, schema_fields: list[Schema], served: list[int]) -> None:
    expected = [f for f in schema_fields if {*versions_of(f["versions"], last=99)} & {*served}]
    ours = fields_of(declared)
    assert [field.name for field in ours] == [snake_case(f["name"]) for f in expected]
    hints = typing.get_type_hints(declared)
    for field, schema_field in zip(ours, expected, strict=True):
        compare_field(field, schema_field, served)
        existing = [version for version in served if field.wire.exists_in(version)]
        compare_type(field.wire.type, schema_field, existing)
        if field.wire.type.name != "records":
            nullable = any(map(field.wire.is_nullable_in, served))
            assert hints[field.name] == annotation(field.wire.type, nullable=nullable), field.name


def compare_field(field: NamedField, expected: Schema, served: list[int]) -> None:
    wire = field.wire
    for version in served:
        exists = version in versions_of(expected["versions"], last=99)
        nullable = version in versions_of(expected.get("nullableVersions"), last=99)
        tagged = version in versions_of(expected.get("taggedVersions"), last=99)
        assert wire.exists_in(version) == exists, field.name
        if exists:
            assert wire.is_nullable_in(version) == nullable, field.name
            assert wire.is_tagged_in(version) == tagged, field.name
    assert wire.tag == expected.get("tag"), field.name
    assert wire.since == versions_of(expected["versions"], last=99)[0]

    always_there = all(map(wire.exists_in, served))
    if field.default is dataclasses.MISSING:
        assert always_there, field.name
        assert "default" not in expected, field.name
    else:
        assert field.default == default_of(expected, field), field.name
    if not always_there:
        assert wire.ignorable == expected.get("ignorable", False), field.name


def compare_type(wire_type: WireType[Any], expected: Schema, served: list[int]) -> None:
    assert TWICE_IN_KAFKA.get(wire_type.name, wire_type.name) == expected["type"]
    while wire_type.element is not None:
        wire_type = wire_type.element
    if wire_type.struct is not None:
        compare(wire_type.struct, expected["fields"], served)


def default_of(expected: Schema, field: NamedField) -> object:
    """The default that a schema states, or Kafka's for the type."""
    text, type_name = expected.get("default"), expected["type"]
    if text == "null":
        return None
    if type_name.startswith("[]"):
        assert text is None
        return ()
    if field.wire.type.kind is Kind.STRUCT:
        assert field.wire.type.struct is not None
        return field.wire.type.struct()
    if type_name in ("string", "uuid"):
        return NO_VALUE[type_name] if text is None else text
    if type_name == "bool":
        return text == "true"
    return int(str(text or 0), 0)


def annotation(wire_type: WireType[Any], *, nullable: bool) -> Any:
    if wire_type.element is not None:
        element = annotation(wire_type.element, nullable=False)
        python_type: Any = types.GenericAlias(tuple, (element, ...))
    else:
        python_type = wire_type.struct or PYTHON_TYPES[wire_type.name]
    return python_type | None if nullable else python_type


def test_declared_values_compare_hash_and_show_by_their_fields() -> None:
    one: object = EpochEndOffset(epoch=3, end_offset=7)

    assert one == EpochEndOffset(epoch=3, end_offset=7)
    assert hash(one) == hash(EpochEndOffset(epoch=3, end_offset=7))
    assert one != EpochEndOffset(epoch=3)
    other: object = AbortedTransaction(producer_id=3, first_offset=7)
    assert one != other
    assert repr(one) == "EpochEndOffset(epoch=3, end_offset=7)"


def test_a_field_without_default_has_to_be_given() -> None:
    with pytest.raises(TypeError, match="fetch_offset"):
        FetchPartition(partition=0, partition_max_bytes=1)  # type: ignore[call-arg]


def test_size_of_a_part_counts_bytes_not_items() -> None:
    assert part_size(memoryview(bytes(8)).cast("q")) == 8
    assert part_size(bytearray(3)) == 3


def _declared_values_cannot_change(value: EpochEndOffset) -> None:
    """Never runs: mypy reports the comment as unused if it ever allows the assignment."""
    value.epoch = 3  # type: ignore[misc]
