"""Reads and writes single records of a batch in plain Python.

    record: length varint | attributes int8 | timestamp delta varlong | offset delta varint
            | key length varint (-1: null), key | value length varint (-1: null), value
            | header count varint, headers
    header: key length varint, key | value length varint (-1: null), value

A varint is zigzag and least significant group first, as in Protocol Buffers: at most 5 bytes for
32 bits, 10 for 64 (varlong). The length counts the bytes after it. The same in C: `record_format.h`.

Source: Apache Kafka, DefaultRecord.java, ByteUtils.java; KIP-98.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.wire.errors import CorruptBatch

_VARINT_BYTES_MAX = 5
_VARLONG_BYTES_MAX = 10

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One record, with its absolute offset and timestamp."""

    offset: int
    timestamp: int
    """Milliseconds since the epoch; -1 if the producer set none."""
    key: bytes | None
    value: bytes | None
    """None for a tombstone."""
    headers: Headers = ()
    """Names may repeat. Bytes that are not UTF-8 become surrogates, as in `os.fsdecode`."""


def read_record(
    plain: memoryview, position: int, *, base_offset: int, base_timestamp: int
) -> tuple[Record, int]:
    """Returns the record at `position` and the position after it.

    Raises:
        CorruptBatch: it is cut off, or its fields do not fill its length exactly.
    """
    length, position = _read_varint(plain, position, _VARINT_BYTES_MAX)
    end = position + length
    if length < 1 or end > len(plain):
        raise CorruptBatch(f"record of {length} bytes, {len(plain) - position} are left")
    body = plain[:end]
    timestamp_delta, position = _read_varint(body, position + 1, _VARLONG_BYTES_MAX)
    offset_delta, position = _read_varint(body, position, _VARINT_BYTES_MAX)
    key, position = _read_nullable(body, position)
    value, position = _read_nullable(body, position)
    headers, position = _read_headers(body, position)
    if position != end:
        raise CorruptBatch(f"{end - position} bytes of a record belong to no field")
    record = Record(
        offset=base_offset + offset_delta,
        timestamp=as_int64(base_timestamp + timestamp_delta),
        key=key,
        value=value,
        headers=headers,
    )
    return record, end


def _read_headers(body: memoryview, position: int) -> tuple[Headers, int]:
    count, position = _read_varint(body, position, _VARINT_BYTES_MAX)
    if count < 0:
        raise CorruptBatch(f"record with {count} headers")
    headers = []
    for _ in range(count):
        key, position = _read_nullable(body, position)
        if key is None:
            raise CorruptBatch("record header without a key")
        value, position = _read_nullable(body, position)
        headers.append((key.decode(errors="surrogateescape"), value))
    return tuple(headers), position


def _read_nullable(body: memoryview, position: int) -> tuple[bytes | None, int]:
    size, position = _read_varint(body, position, _VARINT_BYTES_MAX)
    if size == -1:
        return None, position
    if not 0 <= size <= len(body) - position:
        raise CorruptBatch(f"field of {size} bytes, {len(body) - position} are left")
    return bytes(body[position : position + size]), position + size


def _read_varint(view: memoryview, position: int, bytes_max: int) -> tuple[int, int]:
    raw = 0
    for count in range(bytes_max):
        if position >= len(view):
            raise CorruptBatch("bytes end inside a number")
        byte = view[position]
        position += 1
        raw |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            break
    else:
        raise CorruptBatch(f"number of more than {bytes_max} bytes")
    if raw >> (32 if bytes_max == _VARINT_BYTES_MAX else 64):
        raise CorruptBatch("number does not fit its type")
    return (raw >> 1) ^ -(raw & 1), position


def write_record(out: bytearray, record: Record, *, base_offset: int, base_timestamp: int) -> None:
    """Append a record to a batch's records."""
    body = bytearray(1)  # Attributes: none is defined.
    _write_varint(body, as_int64(record.timestamp - base_timestamp))
    _write_varint(body, record.offset - base_offset)
    _write_nullable(body, record.key)
    _write_nullable(body, record.value)
    _write_varint(body, len(record.headers))
    for key, value in record.headers:
        _write_nullable(body, key.encode(errors="surrogateescape"))
        _write_nullable(body, value)
    _write_varint(out, len(body))
    out += body


def as_int64(number: int) -> int:
    """Returns the number as a Java long wraps it: producers choose timestamps, and their differences may
    be too large."""
    return (number + 2**63) % 2**64 - 2**63


def _write_nullable(out: bytearray, data: bytes | None) -> None:
    if data is None:
        _write_varint(out, -1)
    else:
        _write_varint(out, len(data))
        out += data


def _write_varint(out: bytearray, value: int) -> None:
    raw = (value << 1) ^ (value >> 63)
    while raw >= 0x80:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
