"""Records whose number says what they contain, and a ledger of what happened to each.

A record's timestamp is its number, so it is known in any log and after any pass of a cleaner; key, value
and headers follow from the number. The ledger has a row for each number: where the record was sent,
the offset that was acknowledged, and whether its transaction was committed. Millions of them are
compared with a log as arrays.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocol.records.record_batch import Record

START_MS = 1_700_000_000_000
NOWHERE = -1
UNDECIDED, COMMITTED, ABORTED = 0, 1, 2
WORD = 2**64 - 1
FILLER_BYTES_MAX = 96
HEADERS_EVERY = 8
DELETED_EVERY = 4
"""One of so many keys is deleted now and then."""
HOT_SHARE = 20
"""One of so many keys is written as often as all others together."""

Flags = NDArray[np.bool_]
Numbers = NDArray[np.int64]


@dataclass(slots=True)
class TracedTopic:
    """A topic that traced records are written to."""

    name: str
    partitions: int
    is_compacted: bool


@dataclass(frozen=True, slots=True)
class Content:
    """What a record contains."""

    key_number: int
    key: bytes
    value: bytes | None
    headers: list[tuple[str, bytes]]


@dataclass(frozen=True, slots=True)
class Columns:
    """The ledger's rows as arrays, one element for each number."""

    topics: Numbers
    partitions: Numbers
    keys: Numbers
    offsets: Numbers
    are_tombstones: Flags
    are_committed: Flags
    are_aborted: Flags

    def of_topic(self, topic: int) -> Flags:
        """Returns which records belong to a topic."""
        return np.array(self.topics == topic, np.bool_)


class Ledger:
    """What was written."""

    def __init__(self, records_max: int, keys_count: int, seed: int) -> None:
        # Constant after construction
        self.records_max = records_max
        self.keys_count = keys_count
        self._seed = seed
        # State
        self.count = 0
        """How many numbers are given out."""
        self.topics = array("b", [0]) * records_max
        self.partitions = array("h", [0]) * records_max
        self.keys = array("i", [0]) * records_max
        self.are_tombstones = array("b", [0]) * records_max
        self.offsets = array("q", [NOWHERE]) * records_max
        self.outcomes = array("b", [UNDECIDED]) * records_max

    def content(self, number: int) -> Content:
        """Returns what the record with a number contains."""
        mixed = mix(number + self._seed)
        is_hot = (mixed >> 40) & 1
        key = mixed % (max(self.keys_count // HOT_SHARE, 1) if is_hot else self.keys_count)
        is_deleted = key % DELETED_EVERY == 0 and (mixed >> 50) & 1
        filler = b"." * ((mixed >> 33) % FILLER_BYTES_MAX)
        value = None if is_deleted else b"%d %016x %s" % (number, mixed, filler)
        headers = [("n", b"%d" % number)] if number % HEADERS_EVERY == 0 else []
        return Content(key, b"key-%d" % key, value, headers)

    def sent(self, topic: int, partition: int, content: Content) -> int:
        """Note the next record. Returns its number."""
        number, self.count = self.count, self.count + 1
        self.topics[number] = topic
        self.partitions[number] = partition
        self.keys[number] = content.key_number
        self.are_tombstones[number] = content.value is None
        return number

    def decided(self, first: int, end: int, outcome: int) -> None:
        """Note the outcome of the records from one number up to another."""
        self.outcomes[first:end] = array("b", [outcome]) * (end - first)

    def columns(self) -> Columns:
        """Returns the rows so far. Every committed record must have its offset."""
        outcomes = self._column(self.outcomes)
        columns = Columns(
            topics=self._column(self.topics),
            partitions=self._column(self.partitions),
            keys=self._column(self.keys),
            offsets=self._column(self.offsets),
            are_tombstones=self._column(self.are_tombstones) == 1,
            are_committed=outcomes == COMMITTED,
            are_aborted=outcomes == ABORTED,
        )
        assert not (outcomes == UNDECIDED).any(), "a round has no outcome"
        assert not (columns.are_committed & (columns.offsets == NOWHERE)).any()
        return columns

    def _column(self, values: array[Any]) -> Numbers:
        return np.array(values[: self.count], np.int64)

    def check(self, record: Record, topic: int, partition: int) -> int:
        """Check that a record of a log was written, and written there. Returns its number."""
        number = record.timestamp - START_MS
        assert 0 <= number < self.count, f"a record that was never written: {record}"
        content = self.content(number)
        found = (record.key, record.value, list(record.headers))
        assert found == (content.key, content.value, content.headers), f"{number}: {record}"
        place = (self.topics[number], self.partitions[number])
        assert place == (topic, partition), f"{number} was written to {place}: {record}"
        offset = self.offsets[number]
        is_acknowledged_here = offset == record.offset
        may_be_anywhere = offset == NOWHERE and self.outcomes[number] == ABORTED
        assert is_acknowledged_here or may_be_anywhere, f"{number} is at {offset}, not at {record}"
        return number


def mix(number: int) -> int:
    """Returns Steele, Lea and Flood's splitmix64."""
    x = number * 0x9E3779B97F4A7C15 & WORD
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & WORD
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & WORD
    return x ^ (x >> 31)


def newest(columns: Columns, chosen: Flags) -> Flags:
    """Returns which of the chosen records are the last committed ones of their keys."""
    (numbers,) = np.nonzero(chosen & columns.are_committed)
    keys, partitions, offsets = (
        each[numbers] for each in (columns.keys, columns.partitions, columns.offsets)
    )
    order = np.lexsort((offsets, keys, partitions))
    keys, partitions = keys[order], partitions[order]
    is_last = np.ones(len(order), np.bool_)
    is_last[:-1] = (keys[1:] != keys[:-1]) | (partitions[1:] != partitions[:-1])
    found = np.zeros(len(chosen), np.bool_)
    found[numbers[order[is_last]]] = True
    return found
