"""What happens to a leader's answers in tests: on their way, or before the leader seals them.

A change of the `payload` concerns the records or the snapshot's bytes, one of the `response` all bytes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import suppress

from protocol.records.batch_header import read_header
from protocol.records.batch_scan import crc32c
from protocol.wire.errors import ProtocolError
from tests.cleaner.fuzz.mutate import damage

BATCH_HEADER_BYTES, CRC_AT, CRC_FROM = 61, 17, 21

Change = Callable[[random.Random, bytes], bytes]
Changes = Sequence[tuple[str, Change]]


def restamped(source: random.Random, data: bytes) -> bytes:
    """Move the offset, the length or the epoch of a batch a little, which its CRC does not cover."""
    out, batches = bytearray(data), places_of_batches(data)
    if batches:
        position, size = source.choice(((0, 8), (0, 8), (8, 4), (12, 4)))
        at = source.choice(batches) + position
        number = int.from_bytes(out[at : at + size]) + source.choice((-3, -2, -1, 1, 2, 3))
        out[at : at + size] = (number % (1 << 8 * size)).to_bytes(size)
    return bytes(out)


def places_of_batches(data: bytes) -> list[int]:
    found, position = [], 0
    with suppress(ProtocolError):
        while position < len(data):
            found.append(position)
            position += read_header(data, position).size_bytes
    return found


def intact(_: random.Random, data: bytes) -> bytes:
    return data


ON_THE_WAY: Changes = (
    ("response", damage),
    ("payload", damage),
    ("payload", restamped),
    ("payload", restamped),
    ("payload", intact),
)


def resealed(source: random.Random, data: bytes) -> bytes:
    """Change the records of a batch, or one of its header's fields, and give it a new CRC."""
    batches = places_of_batches(data)
    if not batches:
        return data
    at = source.choice(batches)
    end = at + read_header(data, at).size_bytes
    batch = bytearray(data[at:end])
    if source.random() < 0.5:
        position = source.randrange(CRC_FROM, BATCH_HEADER_BYTES)
        batch[position] ^= 1 << source.randrange(8)
    else:
        batch[BATCH_HEADER_BYTES:] = damage(source, bytes(batch[BATCH_HEADER_BYTES:]))
    batch[8:12] = (len(batch) - 12).to_bytes(4)
    batch[CRC_AT:CRC_FROM] = crc32c(bytes(batch[CRC_FROM:])).to_bytes(4)
    return data[:at] + bytes(batch) + data[end:]


def sealed(data: bytes) -> bytes:
    """Give all batches the CRC that they must have."""
    out = bytearray(data)
    for at in places_of_batches(data):
        end = at + read_header(data, at).size_bytes
        out[at + CRC_AT : at + CRC_FROM] = crc32c(bytes(out[at + CRC_FROM : end])).to_bytes(4)
    return bytes(out)
