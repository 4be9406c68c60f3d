"""Numbered records for topics with different features of the cleaner, and what must be left of each.

A record's number is its place among those of its producer, the sequence of its batch. It is not its
offset, because the broker appends tombstones of its own. Everything about a record follows from its
number, so what must be left follows from how many there are.
"""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray

from tests.harness.numbered_records import (
    RECORDS_A_BATCH,
    START_MS,
    Columns,
    NumberedRecords,
    Offsets,
    constant,
    whole,
)

VERSION_HEADER = b"version"
TTL_HEADER = b"ttl"
UNKEYED_EVERY = 100
"""One batch of so many has records without a key."""
HOUR_MS = 3_600_000
KEYS_A_SHARE = 3


class FeatureRecords(NumberedRecords):
    """The records of a topic that keeps the last value of each key."""

    topic = "spared"

    def left(self, count: int) -> Offsets:
        """Returns the numbers of the values that are left of the first `count` records."""
        last = np.full(self.keys_count, -1, np.int64)
        for numbers in _chunks(count):
            last[self.keys_of(numbers)] = numbers
        last = np.sort(last[last >= 0])
        return last[~self.are_tombstones(last)]

    def has_keys(self, first: int) -> bool:
        """Returns whether the records of the batch that begins with a number have keys."""
        return True

    def _by_key(self, count: int) -> tuple[Offsets, Offsets, NDArray[np.bool_]]:
        """Returns all numbers in the order of their keys, the keys, and which come after the last
        tombstone of their key."""
        numbers = np.arange(count, dtype=np.int64)
        keys = np.concatenate([self.keys_of(each) for each in _chunks(count)])
        falls = np.concatenate([self.are_tombstones(each) for each in _chunks(count)])
        ended = np.full(self.keys_count, -1, np.int64)
        ended[keys[falls]] = numbers[falls]
        order = np.argsort(keys, kind="stable")
        return order, keys[order], order > ended[keys[order]]


class RankedRecords(FeatureRecords):
    """Records with versions in a header; a tenth of them comes late."""

    topic = "ranked"

    def versions_of(self, numbers: Offsets) -> Offsets:
        mixed = self.mixed(numbers)
        is_late = (mixed >> np.uint64(8)) % np.uint64(10) == 0
        late = ((mixed >> np.uint64(20)) % np.uint64(5000)).astype(np.int64)
        return np.where(is_late, numbers - late, numbers)

    def header_columns(self, offsets: Offsets) -> list[Columns]:
        head = bytes([2, 2 * len(VERSION_HEADER)]) + VERSION_HEADER + bytes([16])
        versions = self.versions_of(offsets).astype(">i8").view(np.uint8).reshape(-1, 8)
        return [constant(len(offsets), head), whole(versions)]

    def left(self, count: int) -> Offsets:
        numbers = np.arange(count, dtype=np.int64)
        keys = np.concatenate([self.keys_of(each) for each in _chunks(count)])
        versions = np.concatenate([self.versions_of(each) for each in _chunks(count)])
        order = np.lexsort((numbers, versions, keys))
        winners = np.sort(order[_is_last(keys[order])])
        return winners[~self.are_tombstones(winners)]


class VersionsRecords(FeatureRecords):
    """Records of a topic that keeps the last three values of each key."""

    topic = "versions"

    def left(self, count: int) -> Offsets:
        order, keys, stays = self._by_key(count)
        ends = np.flatnonzero(_is_last(keys))
        after = np.repeat(ends, np.diff(np.concatenate([[-1], ends]))) - np.arange(len(keys))
        return np.sort(order[stays & (after < 3)])


class ThinnedRecords(FeatureRecords):
    """Records of a topic that keeps the last value of each hour."""

    topic = "thinned"

    def left(self, count: int) -> Offsets:
        order, keys, stays = self._by_key(count)
        hours = (START_MS + order) // HOUR_MS
        is_last = _is_last(keys) | np.concatenate([hours[1:] != hours[:-1], [True]])
        return np.sort(order[stays & is_last])


class ExpiringRecords(FeatureRecords):
    """Records of which a third expires at once."""

    topic = "expiring"

    def header_columns(self, offsets: Offsets) -> list[Columns]:
        expires = self.expire(offsets)
        head = np.where(expires, 2, 0).astype(np.uint8)[:, None]
        rest = bytes([2 * len(TTL_HEADER)]) + TTL_HEADER + bytes([2]) + b"1"
        rows, _ = constant(len(offsets), rest)
        return [whole(head), (rows, np.repeat(expires[:, None], rows.shape[1], axis=1))]

    def expire(self, numbers: Offsets) -> NDArray[np.bool_]:
        return np.equal(self.keys_of(numbers) % KEYS_A_SHARE, 0)

    def left(self, count: int) -> Offsets:
        last = super().left(count)
        return last[~self.expire(last)]


class UnkeyedRecords(FeatureRecords):
    """Records of a topic that is not compacted at times. Those without a key are moved."""

    topic = "moved"

    def has_keys(self, first: int) -> bool:
        return first // RECORDS_A_BATCH % UNKEYED_EVERY != 0

    def key_columns(self, offsets: Offsets) -> list[Columns]:
        if self.has_keys(int(offsets[0])):
            return super().key_columns(offsets)
        return [constant(len(offsets), b"\1")]

    def left(self, count: int) -> Offsets:
        last = np.full(self.keys_count, -1, np.int64)
        for first in range(0, count, RECORDS_A_BATCH):
            if self.has_keys(first):
                numbers = np.arange(first, min(first + RECORDS_A_BATCH, count), dtype=np.int64)
                last[self.keys_of(numbers)] = numbers
        last = np.sort(last[last >= 0])
        return last[~self.are_tombstones(last)]

    def unkeyed(self, count: int) -> int:
        """Returns how many of the first `count` records have no key."""
        return sum(
            min(RECORDS_A_BATCH, count - first)
            for first in range(0, count, RECORDS_A_BATCH)
            if not self.has_keys(first)
        )


KINDS: tuple[type[FeatureRecords], ...] = (
    RankedRecords, VersionsRecords, ThinnedRecords, ExpiringRecords, FeatureRecords, UnkeyedRecords,
)  # fmt: skip


def with_number(batch: memoryview) -> tuple[int, memoryview]:
    """Returns the offset of a numbered batch, and the batch as if its first number were its offset.

    The checksum of a batch does not cover its offset.
    """
    (base_offset,) = struct.unpack_from(">q", batch)
    (first,) = struct.unpack_from(">i", batch, 53)
    return base_offset, memoryview(struct.pack(">q", first) + bytes(batch[8:]))


def _is_last(keys: Offsets) -> NDArray[np.bool_]:
    """Returns which of some sorted keys are the last ones of their kind."""
    return np.concatenate([keys[1:] != keys[:-1], [True]])


def _chunks(count: int) -> list[Offsets]:
    return np.array_split(np.arange(count, dtype=np.int64), max(count // 1_000_000, 1))
