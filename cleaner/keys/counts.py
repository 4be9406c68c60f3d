"""Counts over the keys of a log: the values that the kernel returns, and what follows from them. Pure.

`cleaner/kernel/key_counts.pyx` counts the records of each key by parts of the hash space; sums over the
parts are those of the log. Numbers of records, below 2^32, are in classes: one for each up to 32, then
sixteen for each doubling (33 to 64, 65 to 128, ...).
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import NamedTuple

AGES = 128
"""Ages of the first records of keys are below it. Age 0: below where growth is counted from."""

EXACT = 32
PER_DOUBLING = 16

HOTTEST_SHARE = 100
"""Skew is the share of the records that the hottest hundredth of the keys has."""


class BlockCounts(NamedTuple):
    """What was counted in blocks of key sidecars: their entries that are in one part."""

    records: int = 0
    record_bytes: int = 0
    tombstones: int = 0
    aborted: int = 0
    """Records of aborted transactions, which count for no key."""
    undecided: int = 0
    """Records of transactions without an outcome."""
    all_bytes: int = 0
    """The size of all entries, whether they count or not."""
    is_full: bool = False
    """The keys do not fit: clear the counts, and start again with half of the part."""

    def plus(self, other: BlockCounts) -> BlockCounts:
        """Returns the counts of both together."""
        return BlockCounts(
            records=self.records + other.records,
            record_bytes=self.record_bytes + other.record_bytes,
            tombstones=self.tombstones + other.tombstones,
            aborted=self.aborted + other.aborted,
            undecided=self.undecided + other.undecided,
            all_bytes=self.all_bytes + other.all_bytes,
            is_full=self.is_full or other.is_full,
        )


class HotKey(NamedTuple):
    """A key with many records. A hotter key is the larger tuple."""

    records: int
    record_bytes: int
    last_offset: int
    """Of the record that outranks its others."""
    key_hash: bytes
    is_deleted: bool


def no_classes() -> array[int]:
    """Returns the packed classes of no keys."""
    return array("Q")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyTally:
    """Sums over keys."""

    keys: int = 0
    live: int = 0
    """Keys whose last record is a value."""
    live_bytes: int = 0
    """The size of these records."""
    was_live: int = 0
    """Keys whose last record of age 0 was a value."""
    by_age: tuple[int, ...] = (0,) * AGES
    """Keys by the age of their first record."""
    classes: array[int] = field(default_factory=no_classes)
    """`CountClass` of each class that has keys, one after the other; never changed."""

    def plus(self, other: KeyTally) -> KeyTally:
        """Returns the sums over the keys of both; no key is in both."""
        return KeyTally(
            keys=self.keys + other.keys,
            live=self.live + other.live,
            live_bytes=self.live_bytes + other.live_bytes,
            was_live=self.was_live + other.was_live,
            by_age=tuple(map(sum, zip(self.by_age, other.by_age, strict=True))),
            classes=merged_classes(self.classes, other.classes),
        )


class CountClass(NamedTuple):
    """The keys whose numbers of records are in one class."""

    number: int
    keys: int
    records: int


def classes_of(packed: array[int]) -> list[CountClass]:
    """Returns the classes of a tally, those with fewer records first."""
    return [CountClass(*packed[at : at + 3]) for at in range(0, len(packed), 3)]


def merged_classes(one: array[int], other: array[int]) -> array[int]:
    """Returns the packed classes of two tallies together."""
    sums: dict[int, CountClass] = {}
    for number, keys, records in (*classes_of(one), *classes_of(other)):
        before = sums.get(number, CountClass(number, 0, 0))
        sums[number] = CountClass(number, before.keys + keys, before.records + records)
    return array("Q", [value for number in sorted(sums) for value in sums[number]])


class VersionsRow(NamedTuple):
    """The keys that have from `least` to `most` records."""

    least: int
    most: int
    keys: int
    records: int


def histogram(packed: array[int]) -> list[VersionsRow]:
    """Returns the keys by their number of records, 1, 2, 3-4, 5-8, ..., without rows that have none."""
    rows: dict[int, VersionsRow] = {}
    for number, keys, records in classes_of(packed):
        row = _row_of(number)
        before = rows.get(row, VersionsRow((1 << row >> 1) + 1, 1 << row, 0, 0))
        rows[row] = before._replace(keys=before.keys + keys, records=before.records + records)
    return [rows[row] for row in sorted(rows)]


def _row_of(number: int) -> int:
    """Returns the row of a class: how many doublings its largest number takes."""
    if number < EXACT:
        return number.bit_length()
    return 6 + (number - EXACT) // PER_DOUBLING


def hottest_keys(keys: int) -> int:
    """Returns how many keys the hottest hundredth has."""
    return -(-keys // HOTTEST_SHARE)


def records_of_hottest(packed: array[int], keys: int) -> float:
    """Returns how many records the `keys` keys with most records have.

    In the class that they divide, each key counts with the average.
    """
    found, left = 0.0, keys
    for _, members, records in reversed(classes_of(packed)):
        taken = min(members, left)
        found += records * taken / members
        left -= taken
        if not left:
            break
    return found
