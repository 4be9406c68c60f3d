"""Batches whose every byte is determined by their offsets; built and checked without a loop over
records.

One idempotent producer writes a partition from offset 0 on, so the record at an offset is always known:
its key, its value (or that it deletes the key), its timestamp, codec and sequence. Data that is read
can be rebuilt and compared byte for byte, for any number of records, and a model of the log is one
array with the last offset of every key.

Source: the record batch of docs/reference/on-disk.md.
"""

from __future__ import annotations

import re
import struct

import numpy as np
from numpy.typing import NDArray

from protocol.records.batch_scan import crc32c
from protocol.records.compression import compress, decompress
from protocol.records.record_batch import Codec

RECORDS_A_BATCH = 1000
PRODUCER_ID = 4711
START_MS = 1_700_000_000_000
HEADER = struct.Struct(">qiibIhiqqqhii")
CRC_START = 21
HORIZON_FLAG = 0x40
KEY_MARK = b"account-"
KEY_BYTES = 16
VALUE_BYTES = 64
FILLER = np.frombuffer(b"." * 32, np.uint8)
HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
PLENTY = 1 << 26

Offsets = NDArray[np.int64]
Bytes = NDArray[np.uint8]
Columns = tuple[Bytes, NDArray[np.bool_]]
"""A field of some records, one row each, and which bytes of a row belong to it."""


class Mismatch(AssertionError):
    """A batch does not match its offsets; the message says where it differs."""


class NumberedRecords:
    """The records of one partition. A quarter of the keys is deleted now and then; 1 % of them
    are hot."""

    __slots__ = ("keys_count", "seed")

    def __init__(self, keys_count: int, seed: int) -> None:
        self.keys_count = keys_count
        self.seed = seed

    # ---------------------------------------------------------------- what stands where

    def keys_of(self, offsets: Offsets) -> Offsets:
        """Returns the number of each record's key."""
        mixed = self.mixed(offsets)
        keys = mixed % np.uint64(self.keys_count)
        is_hot = (mixed >> np.uint64(40)) & np.uint64(1) == 1
        return np.where(is_hot, keys % np.uint64(max(self.keys_count // 100, 1)), keys).astype(
            np.int64
        )

    def are_tombstones(self, offsets: Offsets) -> NDArray[np.bool_]:
        """Returns which records are tombstones: every second one of a mortal key."""
        falls = (self.mixed(offsets) >> np.uint64(50)) & np.uint64(1) == 1
        return np.array(falls & is_mortal(self.keys_of(offsets)), np.bool_)

    def mixed(self, offsets: Offsets) -> NDArray[np.uint64]:
        """Returns Steele, Lea and Flood's splitmix64."""
        x = (offsets.astype(np.uint64) + np.uint64(self.seed)) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))

    # ---------------------------------------------------------------- batches

    def batch(self, base_offset: int) -> bytes:
        """Returns the batch that begins at an offset, as its producer sends it."""
        offsets = np.arange(base_offset, base_offset + RECORDS_A_BATCH, dtype=np.int64)
        codec = codec_at(base_offset)
        base_timestamp = START_MS + base_offset
        records = bytes(compress(codec, self._records(offsets, base_offset, base_timestamp)))
        max_timestamp = base_timestamp + RECORDS_A_BATCH - 1
        fields = (codec, RECORDS_A_BATCH - 1, base_timestamp, max_timestamp, PRODUCER_ID, 0)
        tail = struct.pack(">hiqqqhii", *fields, base_offset % 2**31, RECORDS_A_BATCH) + records
        head = struct.pack(">qiibI", 0, len(tail) + 9, -1, 2, crc32c(tail))
        return head + tail

    def check(self, batch: memoryview) -> Offsets:
        """Returns the offsets of a batch's remaining records, which must be as they were sent.

        Raises:
            Mismatch: a byte of them differs, or a header field that never changes.
        """
        base, _, _, _, crc, attributes, *fields = HEADER.unpack_from(batch)
        last_delta, base_timestamp, max_timestamp, *producer, count = fields
        _expect(crc, crc32c(batch[CRC_START:]), base, "CRC")
        # Offset, last offset, producer and sequence stay, even if a pass changes the rest.
        _expect(base % RECORDS_A_BATCH, 0, base, "base offset")
        _expect(last_delta, RECORDS_A_BATCH - 1, base, "last offset delta")
        _expect(producer, [PRODUCER_ID, 0, base % 2**31], base, "producer and sequence")
        if count == 0:
            return np.empty(0, np.int64)
        _expect(attributes & ~HORIZON_FLAG, codec_at(base), base, "attributes")
        if not attributes & HORIZON_FLAG:
            _expect(base_timestamp, START_MS + base, base, "base timestamp")
        records = bytes(decompress(codec_at(base), batch[HEADER.size :], bytes_max=PLENTY))
        offsets = _offsets_in(records, base)
        _expect(len(offsets), count, base, "record count")
        _expect(max_timestamp, START_MS + int(offsets[-1]), base, "max timestamp")
        _expect(records, self._records(offsets, base, base_timestamp), base, "records")
        return offsets

    def _records(self, offsets: Offsets, base_offset: int, base_timestamp: int) -> bytes:
        """Returns the uncompressed records of a batch at these offsets."""
        is_there = ~self.are_tombstones(offsets)
        timestamps = _varints(START_MS + offsets - base_timestamp)
        deltas = _varints(offsets - base_offset)
        value_size = _varints(np.where(is_there, VALUE_BYTES, -1))
        value = self._values(offsets), np.repeat(is_there[:, None], VALUE_BYTES, axis=1)
        body = [
            constant(len(offsets), b"\0"),
            timestamps,
            deltas,
            *self.key_columns(offsets),
            value_size,
            value,
            *self.header_columns(offsets),
        ]
        sizes = sum(mask.sum(axis=1) for _, mask in body)
        columns = [_varints(np.asarray(sizes, np.int64)), *body]
        rows = np.concatenate([rows for rows, _ in columns], axis=1)
        return bytes(rows[np.concatenate([mask for _, mask in columns], axis=1)])

    def key_columns(self, offsets: Offsets) -> list[Columns]:
        """Returns the keys with their sizes."""
        mark = constant(len(offsets), bytes([KEY_BYTES * 2]) + KEY_MARK)
        return [mark, whole(_digits(self.keys_of(offsets)))]

    def header_columns(self, offsets: Offsets) -> list[Columns]:
        """Returns the headers with their number."""
        return [constant(len(offsets), b"\0")]

    def _values(self, offsets: Offsets) -> Bytes:
        mixed = self.mixed(offsets)
        raw = np.stack([mixed, mixed ^ offsets.astype(np.uint64)], axis=1).view(np.uint8)
        digits = np.stack([HEX[raw >> 4], HEX[raw & 15]], axis=2).reshape(len(offsets), -1)
        return np.concatenate([digits, np.tile(FILLER, (len(offsets), 1))], axis=1)


def is_mortal(keys: Offsets) -> NDArray[np.bool_]:
    """Returns which keys are deleted at times; the others always have a value once they have one."""
    return np.equal(keys % 4, 0)


def codec_at(base_offset: int) -> Codec:
    """Returns the batch's codec: the five codecs in turn."""
    return Codec(base_offset // RECORDS_A_BATCH % len(Codec))


def _offsets_in(records: bytes, base_offset: int) -> Offsets:
    """Returns the offsets of records, from the varint before each key's size.

    A key's mark occurs nowhere else. Only the last byte of a varint lacks the high bit, which shows
    where the offset delta begins.
    """
    marks = np.fromiter((m.start() for m in re.finditer(KEY_MARK, records)), np.int64)
    data = np.frombuffer(records, np.uint8).astype(np.int64)
    low, high = data[marks - 2], data[marks - 3]
    zigzag = np.where(high >= 0x80, (low << 7) | (high & 0x7F), low)
    return base_offset + (zigzag >> 1)


def _varints(numbers: Offsets) -> Columns:
    zigzag = ((numbers << 1) ^ (numbers >> 63)).astype(np.uint64)
    width = max((int(zigzag.max()).bit_length() + 6) // 7, 1)
    shifts = np.arange(width, dtype=np.uint64) * np.uint64(7)
    rest = zigzag[:, None] >> shifts
    mask = rest > 0
    mask[:, 0] = True
    goes_on = np.concatenate([mask[:, 1:], np.zeros((len(numbers), 1), np.bool_)], axis=1)
    return ((rest & np.uint64(0x7F)) | (goes_on.astype(np.uint64) << np.uint64(7))).astype(
        np.uint8
    ), mask


def _digits(numbers: Offsets) -> Bytes:
    """Returns eight decimal digits of each number."""
    powers = 10 ** np.arange(KEY_BYTES - len(KEY_MARK) - 1, -1, -1)
    return (numbers[:, None] // powers % 10 + ord("0")).astype(np.uint8)


def constant(count: int, data: bytes) -> Columns:
    return whole(np.tile(np.frombuffer(data, np.uint8), (count, 1)))


def whole(rows: Bytes) -> Columns:
    return rows, np.ones(rows.shape, np.bool_)


def _expect(found: object, expected: object, base_offset: int, field: str) -> None:
    if found != expected:
        raise Mismatch(f"batch at {base_offset}: {field} is {found!r}, not {expected!r}"[:2000])
