"""The last values of a topic, and their changes, as server-sent events. Pure.

    event: value | deleted | live | error
    data: {"partition": 0, "offset": 11, "key": "ada", ...}          one line of JSON

    id: 0:12,1:7               where a client continues that sends it back as Last-Event-ID

Source: HTML Living Standard, 9.2 Server-sent events.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping

import msgspec

from protocol.records.batch_header import BatchHeader, read_header
from protocol.records.record import Record
from protocol.records.record_batch import read_records
from server.lookup.lookup_json import Decodings, Json, key_json, record_json
from server.lookup.lookup_request import bad

VALUE, DELETED, LIVE, ERROR = "value", "deleted", "live", "error"
STILL_THERE = b":\n\n"
"""A comment, which keeps a connection open that nothing else is sent on."""

PIECE_RECORDS = 64
PIECE_BYTES = 256 << 10
"""Records are decoded in pieces of so many, or of so many bytes."""

_POSITION = re.compile(r"(\d{1,10}):(\d{1,19})")


def event(name: str, data: Json) -> bytes:
    """Returns one event."""
    return b"event: %s\ndata: %s\n\n" % (name.encode(), msgspec.json.encode(data))


def record_event(partition: int, record: Record, decodings: Decodings) -> bytes:
    """Returns the event about the last record of a key."""
    assert record.key is not None
    named = key_json(record.key, decodings)
    if record.value is not None:
        return event(VALUE, named | record_json(partition, record, decodings))
    place = {
        "partition": partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp,
    }
    return event(DELETED, named | place)


def batches_in(data: bytes) -> Iterator[tuple[int, BatchHeader]]:
    """Yields the position and header of each whole batch."""
    at = 0
    while at < len(data):
        header = read_header(data, at)
        yield at, header
        at += header.size_bytes


def records_of_batch(
    data: bytes, at: int, start_offset: int, *, decompressed_bytes_max: int
) -> list[Record]:
    """Returns the records of a batch from an offset on."""
    records = read_records(data, at, decompressed_bytes_max=decompressed_bytes_max)
    return [each for each in records if each.offset >= start_offset]


def events_of_records(partition: int, records: Iterable[Record], decodings: Decodings) -> bytes:
    """Returns the events about some records."""
    return b"".join(record_event(partition, each, decodings) for each in records)


def pieces_of(records: Iterable[Record]) -> Iterator[list[Record]]:
    """Yields the records in pieces that are decoded at once."""
    piece: list[Record] = []
    size = 0
    for record in records:
        piece.append(record)
        size += len(record.key or b"") + len(record.value or b"")
        if len(piece) == PIECE_RECORDS or size >= PIECE_BYTES:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece


def encoded_in(records: Iterable[Record]) -> Iterator[bytes]:
    """Yields the keys and values of records, which may name schemas."""
    for record in records:
        yield from (each for each in (record.key, record.value) if each is not None)


def id_line(positions: Mapping[int, int]) -> bytes:
    """Returns the id of a client that has everything below these positions: no event of its own."""
    said = ",".join(f"{number}:{offset}" for number, offset in sorted(positions.items()))
    return b"id: %s\n\n" % said.encode()


def positions_of(text: str, numbers: Collection[int]) -> dict[int, int]:
    """Returns the positions that an id names, of these partitions. Raises CompactionRefused."""
    found = {}
    for part in text.split(","):
        match = _POSITION.fullmatch(part)
        if match is None:
            raise bad(f"Last-Event-ID is the id of an event of this stream, not {text[:100]!r}")
        found[int(match[1])] = int(match[2])
    if not found.keys() <= set(numbers):
        raise bad(f"Last-Event-ID {text[:100]!r} names partitions that are not asked for")
    return found
