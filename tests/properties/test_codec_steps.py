"""Decoding, encoding and freeing in steps: the same messages and bytes, and a pause wherever it is due.

Generated from the table of APIs: a new message is in it.
"""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Generator
from typing import Any, TypeVar

import pytest

from protocol.messages.describe_configs import DescribeConfigsResponse
from protocol.wire import decode as decoding
from protocol.wire import dismantle as dismantling
from protocol.wire import encode as encoding
from protocol.wire.api_keys import APIS
from protocol.wire.decode import decode, decode_in_steps
from protocol.wire.dismantle import dismantle
from protocol.wire.encode import encode_in_steps
from protocol.wire.errors import DecodeError
from protocol.wire.schema import Kind, Message, fields_of
from tests.harness.messages import message_types, message_versions
from tests.properties.test_codec_oracles import each_version, encoded, samples

T = TypeVar("T")
MANY = 1_100
NEWEST = [
    pytest.param(message_type, APIS[message_type.api_key].version_max, id=message_type.__name__)
    for message_type in message_types()
]


def run(steps: Generator[object, None, T]) -> tuple[T, int]:
    """The result of a generator, and how often it paused."""
    pauses = 0
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            return ended.value, pauses
        pauses += 1


def as_tuples(value: Any) -> Any:
    """A message whose arrays are tuples, however long they are."""
    if isinstance(value, list | tuple):
        return tuple(as_tuples(element) for element in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        made = {f.name: as_tuples(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return dataclasses.replace(value, **made)
    return value


def arrays_of(message_type: type[Message], version: int) -> list[str]:
    return [
        field.name
        for field in fields_of(message_type)
        if field.wire.type.kind is Kind.ARRAY
        and field.wire.exists_in(version)
        and not field.wire.is_tagged_in(version)
    ]


def with_many(message: Any, name: str) -> Any:
    """The message with its array's elements repeated; None if it has no element."""
    elements = getattr(message, name)
    if not elements:
        return None
    return dataclasses.replace(message, **{name: (elements * MANY)[:MANY]})


def large(message_type: type[Message], version: int) -> list[Message]:
    """A message of each array, with many elements in that array."""
    found = []
    for name in arrays_of(message_type, version):
        small = sorted(samples(message_type, version), key=lambda m: len(encoded(m, version)))
        made = (with_many(message, name) for message in small)
        found += [message for message in made if message is not None][:1]
    return found


@each_version
def test_in_steps_a_message_is_what_it_is_at_once(
    message_type: type[Message], version: int
) -> None:
    for message in samples(message_type, version):
        data = encoded(message, version)
        parts, _ = run(encode_in_steps(message, version, bytearray()))
        (decoded, end), _ = run(decode_in_steps(message_type, version, memoryview(data)))

        assert end == len(data)
        assert b"".join(bytes(part) for part in parts) == data  # type: ignore[arg-type]
        assert decoded == message


@pytest.mark.parametrize(("message_type", "version"), NEWEST)
def test_many_elements_are_the_same_in_steps_with_pauses_between(
    message_type: type[Message], version: int
) -> None:
    for message in large(message_type, version):
        data = encoded(message, version)
        parts, encode_pauses = run(encode_in_steps(message, version, bytearray()))
        assert b"".join(bytes(part) for part in parts) == data  # type: ignore[arg-type]

        (decoded, _), decode_pauses = run(decode_in_steps(message_type, version, memoryview(data)))
        assert as_tuples(decoded) == decode(message_type, version, memoryview(data))

        is_numbers = len(data) < 9 * MANY  # an array of numbers is read by larger steps
        assert is_numbers or encode_pauses >= MANY // encoding.STEP_ELEMENTS - 1
        assert is_numbers or decode_pauses >= MANY // decoding.STEP_ELEMENTS - 1


@each_version
def test_in_steps_a_message_with_a_byte_missing_is_refused(
    message_type: type[Message], version: int
) -> None:
    for message in samples(message_type, version):
        data = encoded(message, version)
        if data:
            with pytest.raises(DecodeError):
                run(decode_in_steps(message_type, version, memoryview(data[:-1])))


def test_there_is_a_large_message_of_every_array_that_a_newest_version_has() -> None:
    """Else the test above would prove nothing of it."""
    lacking = [
        message_type.__name__
        for message_type, version in message_versions()
        if version == APIS[message_type.api_key].version_max
        and len(large(message_type, version)) < len(arrays_of(message_type, version))
    ]

    assert not lacking


def dismantled(message: Message) -> int:
    _, pauses = run(dismantle(message))
    return pauses


@pytest.mark.parametrize(("message_type", "version"), NEWEST)
def test_dismantling_leaves_no_array_in_the_message(
    message_type: type[Message], version: int
) -> None:
    for message in large(message_type, version):
        data = encoded(message, version)
        (decoded, _), _ = run(decode_in_steps(message_type, version, memoryview(data)))
        many = [
            name
            for name in arrays_of(message_type, version)
            if len(getattr(decoded, name) or ()) == MANY
        ]

        pauses = dismantled(decoded)

        assert all(not getattr(decoded, name) for name in many)
        assert pauses >= MANY // dismantling.STEP_ELEMENTS - 1


def test_dismantling_spares_what_others_hold() -> None:
    version = APIS[DescribeConfigsResponse.api_key].version_max
    (message,) = large(DescribeConfigsResponse, version)
    row = message.results[0]  # type: ignore[attr-defined]
    configs = row.configs

    dismantled(message)

    assert row.configs == configs
    assert not message.results  # type: ignore[attr-defined]


def test_dismantling_frees_every_element_without_the_collector() -> None:
    version = APIS[DescribeConfigsResponse.api_key].version_max
    (message,) = large(DescribeConfigsResponse, version)
    data = memoryview(encoded(message, version))
    gc.collect()
    gc.disable()
    try:
        before = len(gc.get_objects())
        (decoded, _), _ = run(decode_in_steps(DescribeConfigsResponse, version, data))
        assert len(gc.get_objects()) > before + MANY
        dismantled(decoded)
        assert len(gc.get_objects()) < before + MANY // 10
    finally:
        gc.enable()
