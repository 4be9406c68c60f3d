"""Recorded transactions of programs, and what readers saw of them: plain values.

A record is identified by its transaction's name and its number in it, in the header `id`.
A program prints each step before it takes it, one per line, so that a killed one's steps are
known:

    begin NAME NANOSECONDS GROUP     by the machine's clock; GROUP is `-` without one
    send TOPIC PARTITION KEY SOURCE  SOURCE is `topic:partition:offset` of its input record, or `-`
    offsets TOPIC PARTITION OFFSET   of the group, in the transaction
    at OFFSET...                     of all records sent, before the commit; -1: not reported
    commit | abort                   requested
    committed | aborted              answered
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

Place = tuple[str, int]
"""Topic and partition."""
Source = tuple[Place, int]
"""The position of a record."""
GroupPlace = tuple[str, Place]
RecordId = tuple[str, int]
"""The transaction's name, and the record's number in it."""


class Outcome(StrEnum):
    """The program's knowledge of how a transaction ended."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    """Or it was never asked to commit: no reader may see any of it."""
    UNKNOWN = "unknown"
    """A commit without an answer: all or nothing, either way."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A record that was given to a producer."""

    place: Place
    key: str
    source: Source | None = None
    offset: int | None = None
    """The acknowledged offset."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """One attempt of one program."""

    name: str
    producer: str
    """Its transactional id."""
    began_ns: int
    """Of two committed transactions, the one that began first is the first: no two producers use a
    transactional id at a time, in whichever order they were started."""
    group: str | None = None
    sent: tuple[Sent, ...] = ()
    offsets: Mapping[Place, int] = field(default_factory=dict)
    """The group's offsets that it commits."""
    outcome: Outcome = Outcome.ABORTED


@dataclass(frozen=True, slots=True)
class Seen:
    """A record that a reader got."""

    offset: int
    record_id: RecordId
    key: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Every partition, read from its start to its last stable offset at the time of the request."""

    reader: str
    ends: Mapping[Place, int]
    records: Mapping[Place, Sequence[Seen]]


@dataclass(frozen=True, slots=True)
class History:
    """All facts about a run; snapshots and offsets in order of time, the last one at rest."""

    transactions: Mapping[str, Transaction]
    snapshots: Sequence[Snapshot]
    offsets: Sequence[Mapping[GroupPlace, int]] = ()
    """The committed offsets of the groups; a missing place has none."""
    compacted: frozenset[str] = frozenset()
    """Topics in which a record may be removed once a later one has its key."""


def read_transactions(producer: str, lines: Iterable[str]) -> list[Transaction]:
    """Returns the transactions of one program, over all its runs; a line cut off by a kill is ignored.

    A JVM that hung prints its thread stacks between the lines; they are indented.
    """
    found: list[Transaction] = []
    for line in lines:
        if not line.endswith("\n") or line[0].isspace():
            continue
        verb, *words = line.split()
        if verb == "begin":
            name, began_ns, group = words
            found.append(
                Transaction(name, producer, int(began_ns), None if group == "-" else group)
            )
        elif verb in STEPS:
            found[-1] = STEPS[verb](found[-1], words)
    return found


def _sent(so_far: Transaction, words: list[str]) -> Transaction:
    topic, partition, key, source = words
    sent = Sent((topic, int(partition)), key, read_source(source))
    return replace(so_far, sent=(*so_far.sent, sent))


def _offsets(so_far: Transaction, words: list[str]) -> Transaction:
    topic, partition, offset = words
    return replace(so_far, offsets={**so_far.offsets, (topic, int(partition)): int(offset)})


def _at(so_far: Transaction, words: list[str]) -> Transaction:
    offsets = [None if offset < 0 else offset for offset in map(int, words)]
    pairs = zip(so_far.sent, offsets, strict=True)
    return replace(so_far, sent=tuple(replace(sent, offset=offset) for sent, offset in pairs))


STEPS: Mapping[str, Callable[[Transaction, list[str]], Transaction]] = {
    "send": _sent,
    "offsets": _offsets,
    "at": _at,
    "commit": lambda so_far, _: replace(so_far, outcome=Outcome.UNKNOWN),
    "committed": lambda so_far, _: replace(so_far, outcome=Outcome.COMMITTED),
    # An abort after a requested commit means that the commit was refused.
    "aborted": lambda so_far, _: replace(so_far, outcome=Outcome.ABORTED),
}


def read_source(word: str) -> Source | None:
    if word == "-":
        return None
    topic, partition, offset = word.split(":")
    return (topic, int(partition)), int(offset)
