"""Our codec against two independent ones and Kafka's schemas, byte for byte, on random messages.

Both libraries have gaps of their own: kafka.protocol accepts truncated input, kio does not know
unknown tagged fields. So each is asked only what it is right about, and strictness is tested by
changing bytes.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
from collections.abc import Callable, Iterable
from typing import Any

import kio.index
import kio.static.constants
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import entity_reader, entity_writer

from protocol.wire.api_keys import APIS
from protocol.wire.decode import decode
from protocol.wire.encode import encode
from protocol.wire.errors import DecodeError, ProtocolError
from protocol.wire.request import parse_request
from protocol.wire.schema import Kind, Message, fields_of
from tests.harness.messages import (
    MessageGenerator,
    ReferenceEncoder,
    has_kafka_schema,
    kafka_python_class,
    kafka_schema,
    message_versions,
)
from tests.harness.raw_client import encode_request

SAMPLES = 48 if "KOMPAKT_SOAK" in os.environ else 8
VERSIONS = list(message_versions())
MADE: dict[tuple[type[Message], int], list[Message]] = {}


def each_of(versions: Iterable[tuple[type[Message], int]]) -> pytest.MarkDecorator:
    params = [pytest.param(*key, id=f"{key[0].__name__}_v{key[1]}") for key in versions]
    return pytest.mark.parametrize(("message_type", "version"), params)


each_version = each_of(VERSIONS)
each_with_a_schema = each_of(key for key in VERSIONS if has_kafka_schema(key[0]))


def samples(message_type: type[Message], version: int) -> list[Message]:
    """The same messages in every run and for every test; half of them with tagged fields."""
    made = MADE.get((message_type, version))
    if made is None:
        rng = random.Random(f"{message_type.__name__} {version}")
        made = [
            MessageGenerator(rng, version=version, tagged=index % 2 == 1).message(message_type)
            for index in range(SAMPLES)
        ]
        MADE[message_type, version] = made
    return made


def encoded(message: Message, version: int) -> bytes:
    return b"".join(bytes(part) for part in encode(message, version))  # type: ignore[arg-type]


@each_with_a_schema
def test_encoding_is_what_kafka_python_writes(message_type: type[Message], version: int) -> None:
    oracle = kafka_python_class(message_type)

    for message in samples(message_type, version):
        theirs = in_kafka_python(message, oracle, version)
        assert encoded(message, version) == bytes(theirs.encode(version=version))


@each_with_a_schema
def test_encoding_is_what_kafkas_schema_says(message_type: type[Message], version: int) -> None:
    reference = ReferenceEncoder(kafka_schema(message_type), version)

    for message in samples(message_type, version):
        assert encoded(message, version) == reference.encode(message)


@each_version
def test_kio_reads_what_we_write_and_writes_the_same(
    message_type: type[Message], version: int
) -> None:
    kind = "request" if message_type is APIS[message_type.api_key].request_type else "response"
    entity_type = kio.index.load_payload_module(
        message_type.api_key, version, kio.static.constants.EntityType[kind]
    )
    oracle = getattr(entity_type, message_type.__name__)

    for message in samples(message_type, version):
        ours = encoded(message, version)
        theirs, size = entity_reader(oracle)(ours, 0)
        assert size == len(ours)
        written = io.BytesIO()
        entity_writer(oracle)(written, theirs)
        assert written.getvalue() == ours


@each_version
def test_decoding_gives_back_what_was_encoded(message_type: type[Message], version: int) -> None:
    for message in samples(message_type, version):
        frame = memoryview(encoded(message, version))
        decoded = decode(message_type, version, frame)
        assert decoded == message
        assert encoded(decoded, version) == frame


@each_with_a_schema
def test_unknown_tagged_fields_are_skipped_at_every_level(
    message_type: type[Message], version: int
) -> None:
    rng = random.Random(f"tags {message_type.__name__} {version}")
    reference = ReferenceEncoder(kafka_schema(message_type), version, rng)

    for message in samples(message_type, version):
        assert decode(message_type, version, memoryview(reference.encode(message))) == message


@each_version
def test_a_message_with_a_byte_missing_or_too_many_is_refused(
    message_type: type[Message], version: int
) -> None:
    rng = random.Random(f"cuts {message_type.__name__} {version}")

    for message in samples(message_type, version):
        whole = encoded(message, version)
        cuts = range(len(whole))
        for cut in {*cuts[:20], *cuts[-20:], *rng.sample(cuts, k=min(20, len(cuts)))}:
            with pytest.raises(DecodeError):
                decode(message_type, version, memoryview(whole[:cut]))
        with pytest.raises(DecodeError):
            decode(message_type, version, memoryview(whole + b"\0"))


@each_of(key for key in VERSIONS if key[0] is APIS[key[0].api_key].request_type)
def test_bytes_behind_any_requests_end_change_nothing(
    message_type: type[Message], version: int
) -> None:
    for message in samples(message_type, version):
        frame = encode_request(message, version, 7)
        for surplus in (b"\0", b"\xff\xff", b"surplus"):
            request = parse_request(frame + surplus)
            assert (request.body, request.surplus_bytes) == (message, len(surplus))


@each_version
def test_damaged_messages_decode_or_are_refused_and_nothing_else(
    message_type: type[Message], version: int
) -> None:
    rng = random.Random(f"damage {message_type.__name__} {version}")

    for message in samples(message_type, version):
        damaged = bytearray(encoded(message, version) or b"\0")
        for _ in range(30):
            damaged[rng.randrange(len(damaged))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF])
            decode_or_refuse(message_type, version, bytes(damaged))


@given(st.sampled_from(VERSIONS), st.binary(max_size=200))
def test_arbitrary_bytes_decode_or_are_refused_and_nothing_else(
    key: tuple[type[Message], int], data: bytes
) -> None:
    decode_or_refuse(*key, data)


@given(st.sampled_from(sorted(APIS)), st.integers(-2, 14), st.binary(max_size=100))
def test_arbitrary_frames_parse_or_are_refused_and_nothing_else(
    key: int, version: int, data: bytes
) -> None:
    frame = key.to_bytes(2, "big") + version.to_bytes(2, "big", signed=True) + data
    with contextlib.suppress(ProtocolError):
        parse_request(frame)


def decode_or_refuse(message_type: type[Message], version: int, data: bytes) -> None:
    """Decode; what is accepted must hold no more than what a canonical form of it holds."""
    try:
        message = decode(message_type, version, memoryview(data))
    except DecodeError:
        return
    again = decode(message_type, version, memoryview(encoded(message, version)))
    assert again == message


def in_kafka_python(message: object, oracle: Callable[..., Any], version: int) -> Any:
    """The same message as an object of kafka-python's, by the names of classes and fields."""
    values = {}
    for field in fields_of(type(message)):
        if not field.wire.exists_in(version):
            continue
        value = getattr(message, field.name)
        if field.wire.is_tagged_in(version) and value == field.default:
            continue
        wire_type = field.wire.type
        if wire_type.kind is Kind.STRUCT and value is not None:
            value = in_kafka_python(value, getattr(oracle, wire_type.name), version)
        elif wire_type.kind is Kind.ARRAY and value is not None:
            nested = getattr(oracle, wire_type.name[2:], None)
            value = [in_kafka_python(v, nested, version) if nested else v for v in value]
        elif wire_type.kind is Kind.BYTES and value is not None:
            value = bytes(value)
        values[field.name] = value
    return oracle(version=version, **values)
