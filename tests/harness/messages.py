"""Random messages of our declarations, and an encoder for them that uses only Kafka's schemas.

The encoder is written for clarity from the JSON schemas alone. It shares nothing with the codec under
test except the names of fields. It can also add unknown tagged fields in every place where a later
version of Kafka might have some.
"""

from __future__ import annotations

import dataclasses
import importlib.resources
import random
import re
import struct
import types
import uuid
import warnings
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from protocol.wire.api_keys import APIS, Api
from protocol.wire.primitives import ZERO_UUID
from protocol.wire.schema import (
    FLOAT64,
    UINT16,
    UUID,
    Kind,
    Message,
    WireField,
    WireType,
    fields_of,
)

Schema = dict[str, Any]
T = TypeVar("T")

with warnings.catch_warnings():
    # kafka-python reads its schemas with a function that importlib deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.protocol.api_header import ResponseClassRegistry
    from kafka.protocol.api_message import ApiMessage
    from kafka.protocol.schemas.load_json import load_json

INTEGER_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
JSON_FORMATS = {
    "bool": "?", "int8": "b", "int16": "h", "uint16": "H", "int32": "i", "int64": "q",
    "float64": "d",
}  # fmt: skip


def message_types() -> Iterator[type[Message]]:
    """Yields every served request and response class."""
    for api in APIS.values():
        yield api.request_type
        yield api.response_type


def message_versions() -> Iterator[tuple[type[Message], int]]:
    """Yields every class with each of its served versions."""
    for message_type in message_types():
        for version in served_versions(APIS[message_type.api_key]):
            yield message_type, version


def served_versions(api: Api) -> range:
    return range(api.served_min, api.version_max + 1)


def has_kafka_schema(message_type: type[Message]) -> bool:
    """Returns whether kafka-python has the schema; it lacks those of messages that it never sends."""
    resources = importlib.resources.files("kafka.protocol.schemas.resources")
    return resources.joinpath(f"{message_type.__name__}.json").is_file()


def kafka_schema(message_type: type[Message]) -> Schema:
    """Returns Kafka's JSON schema of a message."""
    schema: Schema
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        schema = load_json(message_type.__name__)
    return schema


def kafka_python_class(message_type: type[Message]) -> Callable[..., Any]:
    """Returns kafka-python's class for a message, made from the schema without its patches."""
    oracle: Callable[..., Any]
    # A new class weakly replaces the library's own in the registry; its client would lose both.
    classes = ResponseClassRegistry._response_class_registry
    own = dict(classes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        oracle = types.new_class(message_type.__name__, (ApiMessage,))
    classes.clear()
    classes.update(own)
    return oracle


def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def versions_of(text: str | None, *, last: int) -> range:
    """Returns the versions that a schema's `3+`, `0-5`, `7` or `none` stands for."""
    if text is None or text == "none":
        return range(0)
    low, _, high = text.rstrip("+").partition("-")
    if text.endswith("+"):
        return range(int(low), last + 1)
    return range(int(low), int(high or low) + 1)


TIMES_THAT_KIO_TURNS = {
    "transaction_start_time_ms", "issue_timestamp_ms", "expiry_timestamp_ms", "max_timestamp_ms",
    "max_lifetime_ms", "renew_period_ms", "expiry_time_period_ms",
}  # fmt: skip


class MessageGenerator:
    """Draws messages that one version can carry; other fields have their defaults."""

    def __init__(self, rng: random.Random, *, version: int, tagged: bool) -> None:
        self.rng = rng
        self.version = version
        self.tagged = tagged

    def message(self, declared: type[T]) -> T:
        values: dict[str, Any] = {}
        for field in fields_of(declared):
            if not field.wire.exists_in(self.version):
                continue
            if field.wire.is_tagged_in(self.version) and not (self.tagged and self._chance(0.7)):
                continue
            values[field.name] = self._field(field.name, field.wire)
        return declared(**values)

    def _field(self, name: str, field: WireField) -> Any:
        if field.is_nullable_in(self.version) and self._chance(0.25):
            return None
        if name.endswith("error_code"):
            return self.rng.randint(-1, 133)
        if name in ("log_append_time_ms", "retention_time_ms", "session_lifetime_ms"):
            # kio turns it into a datetime, or a timedelta.
            return self.rng.choice([-1, self.rng.randrange(4_000_000_000_000)])
        if name in TIMES_THAT_KIO_TURNS:
            # For these fields kio does not know that -1 means none.
            return self.rng.randrange(4_000_000_000_000)
        return self._value(field.type)

    def _value(self, wire_type: WireType[Any]) -> Any:
        match wire_type.kind:
            case Kind.FIXED if wire_type is UUID:
                return self.rng.choice([ZERO_UUID, uuid.UUID(int=self.rng.getrandbits(128))])
            case Kind.FIXED if wire_type.name == "bool":
                return self._chance(0.5)
            case Kind.FIXED if wire_type is FLOAT64:
                return self.rng.choice([0.0, -1.5, 1e300, self.rng.random()])
            case Kind.FIXED if wire_type is UINT16:
                return self.rng.choice([0, 1, 9092, 0xFFFF])
            case Kind.FIXED:
                return self._integer(INTEGER_BITS[wire_type.name])
            case Kind.STRING:
                return self._string()
            case Kind.BYTES:
                return memoryview(self.rng.randbytes(self._size()))
            case Kind.ARRAY:
                assert wire_type.element is not None
                element = wire_type.element
                count = 130 if self._chance(0.03) else self.rng.randrange(4)
                return tuple(self._value(element) for _ in range(count))
            case Kind.STRUCT:
                assert wire_type.struct is not None
                return self.message(wire_type.struct)

    def _integer(self, bits: int) -> int:
        limit = 1 << (bits - 1)
        return self.rng.choice([-limit, -1, 0, 1, limit - 1, self.rng.randrange(-limit, limit)])

    def _string(self) -> str:
        alphabet = self.rng.choice(["abc-._", "aé€𝄞\0"])
        return "".join(self.rng.choices(alphabet, k=self._size() % 400))

    def _size(self) -> int:
        return self.rng.choice([0, 1, 5, 126, 127, 128, 300, 1024, 1025, 20_000])

    def _chance(self, probability: float) -> bool:
        return self.rng.random() < probability


class ReferenceEncoder:
    """Encodes a message by its JSON schema; with `rng`, adds unknown tagged fields."""

    def __init__(self, schema: Schema, version: int, rng: random.Random | None = None) -> None:
        self.schema = schema
        self.version = version
        self.rng = rng
        self.flexible = version in versions_of(schema["flexibleVersions"], last=version)

    def encode(self, message: object) -> bytes:
        return self._structure(self.schema["fields"], message)

    def _structure(self, fields: list[Schema], value: object) -> bytes:
        out = b""
        tagged: dict[int, bytes] = {}
        for field in fields:
            if self.version not in versions_of(field["versions"], last=self.version):
                continue
            item = getattr(value, snake_case(field["name"]))
            if self.version not in versions_of(field.get("taggedVersions"), last=self.version):
                out += self._value(field["type"], field, item)
            elif item != declared_default(value, snake_case(field["name"])):
                tagged[field["tag"]] = self._value(field["type"], field, item)
        if self.flexible:
            out += self._tagged_fields(tagged)
        return out

    def _tagged_fields(self, tagged: dict[int, bytes]) -> bytes:
        if self.rng is not None:
            for tag in self.rng.sample([50, 127, 128, 5000, 0xFFFFFFFF], k=self.rng.randrange(3)):
                tagged[tag] = self.rng.randbytes(self.rng.choice([0, 1, 200]))
        return varint(len(tagged)) + b"".join(
            varint(tag) + varint(len(data)) + data for tag, data in sorted(tagged.items())
        )

    def _value(self, type_name: str, field: Schema, value: Any) -> bytes:
        if type_name.startswith("[]"):
            if value is None:
                return self._length(None, "i")
            items = b"".join(self._value(type_name[2:], field, item) for item in value)
            return self._length(len(value), "i") + items
        if type_name in JSON_FORMATS:
            return struct.pack(">" + JSON_FORMATS[type_name], value)
        if type_name == "uuid":
            data: bytes = value.bytes
            return data
        if type_name == "string":
            text = None if value is None else value.encode()
            return self._length(None if text is None else len(text), "h") + (text or b"")
        if type_name in ("bytes", "records"):
            return self._length(None if value is None else len(value), "i") + bytes(value or b"")
        if not is_nullable(field, self.version):
            return self._structure(field["fields"], value)
        return b"\xff" if value is None else b"\1" + self._structure(field["fields"], value)

    def _length(self, length: int | None, prefix: str) -> bytes:
        if self.flexible:
            return varint(0 if length is None else length + 1)
        return struct.pack(">" + prefix, -1 if length is None else length)


def is_nullable(field: Schema, version: int) -> bool:
    """Returns whether a field that is not an array may be null."""
    is_array = field["type"].startswith("[]")
    return not is_array and version in versions_of(field.get("nullableVersions"), last=version)


def varint(value: int) -> bytes:
    out = bytearray()
    while True:
        value, low = value >> 7, value & 0x7F
        out.append(low | (0x80 if value else 0))
        if not value:
            return bytes(out)


def declared_default(value: object, name: str) -> object:
    (default,) = (f.default for f in dataclasses.fields(value) if f.name == name)  # type: ignore[arg-type]
    return default
