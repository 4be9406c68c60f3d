"""Varints, nullable strings and tagged fields: every byte counted, every bound checked."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.wire.errors import DecodeError
from protocol.wire.primitives import (
    ELEMENTS_MAX,
    read_nullable_string,
    read_unsigned_varint,
    skip_tagged_fields,
    take_elements,
    write_unsigned_varint,
)


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (0, b"\x00"),
        (127, b"\x7f"),
        (128, b"\x80\x01"),
        (300, b"\xac\x02"),
        (0xFFFFFFFF, b"\xff\xff\xff\xff\x0f"),
    ],
)
def test_varint_has_seven_bits_a_byte_least_significant_first(value: int, data: bytes) -> None:
    out = bytearray()
    write_unsigned_varint(out, value)
    assert out == data
    assert read_unsigned_varint(memoryview(b"?" + data + b"?"), 1) == (value, 1 + len(data))


@given(st.integers(0, 0xFFFFFFFF))
def test_varint_round_trip(value: int) -> None:
    out = bytearray()
    write_unsigned_varint(out, value)
    assert read_unsigned_varint(memoryview(out), 0) == (value, len(out))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(b"", "truncated", id="nothing"),
        pytest.param(b"\x80\x80", "truncated", id="truncated"),
        pytest.param(b"\x80\x80\x80\x80\x80\x01", "5 bytes", id="six_bytes"),
        pytest.param(b"\xff\xff\xff\xff\x10", "32 bits", id="33_bits"),
    ],
)
def test_varint_that_is_none_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(DecodeError, match=message):
        read_unsigned_varint(memoryview(data), 0)


def test_varint_may_be_longer_than_needed() -> None:
    """Kafka's readUnsignedVarint accepts it, so clients may send it."""
    assert read_unsigned_varint(memoryview(b"\x81\x80\x00"), 0) == (1, 3)


def test_nullable_string() -> None:
    assert read_nullable_string(memoryview(b"\xff\xff"), 0) == (None, 2)
    assert read_nullable_string(memoryview(b"\x00\x00"), 0) == ("", 2)
    assert read_nullable_string(memoryview("?\0\2é".encode()), 1) == ("é", 5)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(b"\x00", "truncated", id="half_a_length"),
        pytest.param(b"\x00\x02a", "truncated", id="truncated"),
        pytest.param(b"\xff\xfe", "-2 bytes", id="negative_length"),
        pytest.param(b"\x00\x01\xff", "UTF-8", id="not_utf8"),
        pytest.param(b"\x00\x03\xed\xa0\x80", "UTF-8", id="surrogate"),
    ],
)
def test_nullable_string_that_is_none_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(DecodeError, match=message):
        read_nullable_string(memoryview(data), 0)


def test_unknown_tagged_fields_are_skipped_and_counted() -> None:
    section = memoryview(b"?" + b"\x02" + b"\x00\x03abc" + b"\x09\x00" + b"?")
    assert skip_tagged_fields(section, 1, 10) == (9, 8)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(b"\x02\x01\x00\x00\x00", "tag 0 after tag 1", id="out_of_order"),
        pytest.param(b"\x02\x01\x00\x01\x00", "tag 1 after tag 1", id="twice"),
        pytest.param(b"\x01\x00\x02a", "truncated in tagged field 0", id="value_truncated"),
        pytest.param(b"\x05\x00\x00", "5 elements in 2 bytes", id="more_than_fit"),
        pytest.param(b"\xe9\x07" + bytes(4_000), "1001 tagged fields", id="more_than_any_has"),
    ],
)
def test_tagged_fields_that_are_none_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(DecodeError, match=message):
        skip_tagged_fields(memoryview(data), 0, ELEMENTS_MAX)


def test_elements_are_bounded_by_the_bytes_that_are_there_and_by_a_budget() -> None:
    assert take_elements(10, 4, 5, 20) == 6
    with pytest.raises(DecodeError, match="array of 5 elements in 20 bytes"):
        take_elements(10, 5, 5, 20)
    with pytest.raises(DecodeError, match="array of -2 elements"):
        take_elements(10, -2, 5, 20)
    with pytest.raises(DecodeError, match="more than 2000000 elements"):
        take_elements(3, 4, 1, 20)
