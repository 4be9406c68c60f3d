"""Finds violations in a recorded history of transactions: a pure function.

Lost writes, duplicates, reordering, aborted and intermediate reads, offsets that go back. A commit
without an answer may have had full or no effect; as soon as any of it is seen, all of it must be there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import pairwise

from tests.harness.transaction_history import (
    GroupPlace,
    History,
    Outcome,
    Place,
    RecordId,
    Seen,
    Sent,
    Snapshot,
    Source,
    Transaction,
)


class Kind(StrEnum):
    """The kinds of violations."""

    LOST_WRITE = "lost write"
    DUPLICATE = "duplicate"
    REORDERED = "reordered"
    MOVED = "not where it was acknowledged"
    PHANTOM = "never sent"
    ABORTED_READ = "aborted read"
    INTERMEDIATE_READ = "part of a transaction"
    LATE_WRITE = "below what was served"
    END_WENT_BACK = "last stable offset went back"
    OFFSET_WENT_BACK = "offset went back"
    OFFSET_OF_NOBODY = "offset that no committed transaction has"


@dataclass(frozen=True, slots=True)
class Violation:
    kind: Kind
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


def violations(history: History) -> list[Violation]:
    """Returns all violations; none for a history that exactly-once allows."""
    facts = Facts(history)
    found: list[Violation] = []
    for snapshot in history.snapshots:
        found += _strangers(facts, snapshot)
        found += _disorder(facts, snapshot)
        found += _parts(facts, snapshot)
    for earlier, later in pairwise(history.snapshots):
        found += _changes(facts, earlier, later)
    found += _sources(facts)
    found += _offsets_back(history.offsets)
    found += _offsets_of_nobody(facts)
    return found


class Facts:
    """Facts derived from a history."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.sent: dict[RecordId, Sent] = {
            (each.name, number): sent
            for each in history.transactions.values()
            for number, sent in enumerate(each.sent)
        }

    @cached_property
    def seen(self) -> frozenset[RecordId]:
        """The records that any reader has seen."""
        return frozenset(
            seen.record_id
            for snapshot in self.history.snapshots
            for records in snapshot.records.values()
            for seen in records
        )

    @cached_property
    def committed(self) -> Sequence[Transaction]:
        """The transactions proven committed: by an answer, by seen records, or by group offsets."""
        seen = {name for name, _ in self.seen}
        return [
            each
            for each in self.history.transactions.values()
            if each.outcome is Outcome.COMMITTED
            or (
                each.outcome is Outcome.UNKNOWN
                and (each.name in seen or each is self._proven(each))
            )
        ]

    def _proven(self, transaction: Transaction) -> Transaction | None:
        """Returns the transaction if a committed offset that was found can only be its own."""
        for place, offset in transaction.offsets.items():
            at = (str(transaction.group), place)
            others = self.commits_of.get((at, offset), [])
            if others == [transaction.name] and offset in self._found.get(at, ()):
                return transaction
        return None

    @cached_property
    def commits_of(self) -> Mapping[tuple[GroupPlace, int], list[str]]:
        """The transactions that may have committed each offset."""
        names = defaultdict(list)
        for each in self.history.transactions.values():
            if each.outcome is not Outcome.ABORTED:
                for place, offset in each.offsets.items():
                    names[(str(each.group), place), offset].append(each.name)
        return names

    @cached_property
    def _found(self) -> Mapping[GroupPlace, set[int]]:
        """The committed offsets that were found for groups."""
        found = defaultdict(set)
        for look in self.history.offsets:
            for at, offset in look.items():
                found[at].add(offset)
        return found

    @cached_property
    def last(self) -> Mapping[tuple[Place, str], int]:
        """The last offset of each key that is known to be committed."""
        last: dict[tuple[Place, str], int] = {}
        for snapshot in self.history.snapshots:
            for place, records in snapshot.records.items():
                for seen in records:
                    last[place, seen.key] = max(last.get((place, seen.key), -1), seen.offset)
        for each in self.committed:
            for sent in each.sent:
                at = (sent.place, sent.key)
                last[at] = max(last.get(at, -1), -1 if sent.offset is None else sent.offset)
        return last

    def may_be_gone(self, place: Place, key: str, offset: int | None) -> bool:
        """Returns whether the cleaner may have removed a record, because a later one has its key."""
        known = -1 if offset is None else offset
        return place[0] in self.history.compacted and self.last.get((place, key), -1) > known


def _strangers(facts: Facts, snapshot: Snapshot) -> Iterator[Violation]:
    """Yields records that no reader should get."""
    for place, records in snapshot.records.items():
        for seen in records:
            sent = facts.sent.get(seen.record_id)
            text = f"{snapshot.reader} at {place}: {seen}"
            if sent is None or (sent.place, sent.key) != (place, seen.key):
                yield Violation(Kind.PHANTOM, text)
            elif facts.history.transactions[seen.record_id[0]].outcome is Outcome.ABORTED:
                yield Violation(Kind.ABORTED_READ, text)
            elif sent.offset not in (None, seen.offset):
                yield Violation(Kind.MOVED, f"{text}, acknowledged at {sent.offset}")


def _disorder(facts: Facts, snapshot: Snapshot) -> Iterator[Violation]:
    """Yields records that occur twice, or out of the order of their producer or source."""
    for place, records in snapshot.records.items():
        for earlier, later in pairwise(records):
            if earlier.offset >= later.offset:
                yield Violation(Kind.REORDERED, f"{snapshot.reader} at {place}: {earlier}, {later}")
        known = [seen for seen in records if seen.record_id in facts.sent]
        if len({seen.record_id for seen in known}) < len(known):
            yield Violation(Kind.DUPLICATE, f"{snapshot.reader} at {place}: {twice(known)}")
        for order in (_by_producer(facts, known), _by_source(facts, known)):
            for rows in order.values():
                for (rank, first), (next_rank, second) in pairwise(rows):
                    if rank > next_rank:
                        text = f"{snapshot.reader} at {place}: {first} before {second}"
                        yield Violation(Kind.REORDERED, text)


Ranked = list[tuple[tuple[int, int], Seen]]


def _by_producer(facts: Facts, records: Sequence[Seen]) -> Mapping[str, Ranked]:
    rows: dict[str, Ranked] = defaultdict(list)
    for seen in records:
        name, number = seen.record_id
        transaction = facts.history.transactions[name]
        rows[transaction.producer].append(((transaction.began_ns, number), seen))
    return rows


def _by_source(facts: Facts, records: Sequence[Seen]) -> Mapping[GroupPlace, Ranked]:
    rows: dict[GroupPlace, Ranked] = defaultdict(list)
    for seen in records:
        source = facts.sent[seen.record_id].source
        if source is not None:
            group = str(facts.history.transactions[seen.record_id[0]].group)
            rows[group, source[0]].append(((source[1], 0), seen))
    return rows


def twice(records: Sequence[Seen]) -> Seen:
    """Returns the first record that occurred before."""
    before: set[RecordId] = set()
    for seen in records:
        if seen.record_id in before:
            return seen
        before.add(seen.record_id)
    raise AssertionError("no record occurs twice")


def _parts(facts: Facts, snapshot: Snapshot) -> Iterator[Violation]:
    """Yields records of committed transactions that a reader should have got and did not.

    An end may be within a committed transaction if another, open transaction holds it there.
    """
    is_last = snapshot is facts.history.snapshots[-1]
    given = {seen.record_id for records in snapshot.records.values() for seen in records}
    for transaction in facts.committed:
        for number, sent in enumerate(transaction.sent):
            is_due = is_last or _is_below(sent, snapshot)
            if (transaction.name, number) in given or not is_due:
                continue
            if not facts.may_be_gone(sent.place, sent.key, sent.offset):
                yield _missing(facts, snapshot, transaction, number)


def _is_below(sent: Sent, snapshot: Snapshot) -> bool:
    return sent.offset is not None and sent.offset < snapshot.ends.get(sent.place, 0)


def _missing(facts: Facts, snapshot: Snapshot, transaction: Transaction, number: int) -> Violation:
    sent = transaction.sent[number]
    text = f"{snapshot.reader}: {transaction.name} {transaction.outcome}, without {number}: {sent}"
    is_known = transaction.outcome is Outcome.COMMITTED
    if is_known and (transaction.name, number) not in facts.seen:
        return Violation(Kind.LOST_WRITE, text)
    return Violation(Kind.INTERMEDIATE_READ, text)


def _changes(facts: Facts, earlier: Snapshot, later: Snapshot) -> Iterator[Violation]:
    """Yields records that disappeared, and records that appeared below a position already read."""
    for place, end in earlier.ends.items():
        text = f"{later.reader} after {earlier.reader} at {place}"
        if later.ends.get(place, 0) < end:
            yield Violation(Kind.END_WENT_BACK, f"{text}: {later.ends.get(place, 0)} after {end}")
        before = {seen.record_id: seen for seen in earlier.records.get(place, ())}
        after = {seen.record_id: seen for seen in later.records.get(place, ())}
        for record_id in before.keys() - after.keys():
            seen = before[record_id]
            if not facts.may_be_gone(place, seen.key, seen.offset):
                yield Violation(Kind.LOST_WRITE, f"{text}: {seen}")
        for record_id in after.keys() - before.keys():
            if after[record_id].offset < end:
                yield Violation(Kind.LATE_WRITE, f"{text}: {after[record_id]} below {end}")
        for record_id in after.keys() & before.keys():
            if after[record_id].offset != before[record_id].offset:
                yield Violation(Kind.MOVED, f"{text}: {after[record_id]}, {before[record_id]}")


def _sources(facts: Facts) -> Iterator[Violation]:
    """Check that the records below a group's offset, and no others, were handled exactly once."""
    handled: dict[tuple[str, Source], set[str]] = defaultdict(set)
    for transaction in facts.committed:
        for sent in transaction.sent:
            if sent.source is not None:
                handled[str(transaction.group), sent.source].add(transaction.name)
    for (group, source), names in handled.items():
        if len(names) > 1:
            text = f"{group} has handled {source} in {', '.join(sorted(names))}"
            yield Violation(Kind.DUPLICATE, text)
    if not facts.history.offsets or not facts.history.snapshots:
        return
    ends = facts.history.offsets[-1]
    last = facts.history.snapshots[-1]
    for group, place in ends.keys() | {(group, place) for group, (place, _) in handled}:
        end = ends.get((group, place), 0)
        visible = {seen.offset for seen in last.records.get(place, ())}
        mine = {offset for who, (at, offset) in handled if (who, at) == (group, place)}
        text = f"{group} at {place}, which it has committed up to {end}"
        for offset in sorted({offset for offset in visible if offset < end} - mine):
            yield Violation(Kind.LOST_WRITE, f"{text}: {offset} was not handled")
        for offset in sorted(mine - visible):
            yield Violation(Kind.ABORTED_READ, f"{text}: {offset} is no committed record")
        for offset in sorted(offset for offset in mine if offset >= end):
            yield Violation(Kind.OFFSET_WENT_BACK, f"{text}: {offset} was handled")


def _offsets_back(looks: Sequence[Mapping[GroupPlace, int]]) -> Iterator[Violation]:
    for earlier, later in pairwise(looks):
        for at, offset in earlier.items():
            if later.get(at, -1) < offset:
                yield Violation(Kind.OFFSET_WENT_BACK, f"{at}: {later.get(at)} after {offset}")


def _offsets_of_nobody(facts: Facts) -> Iterator[Violation]:
    """Yields committed offsets that belong to no transaction, or only to an aborted one."""
    for look in facts.history.offsets:
        for at, offset in look.items():
            if (at, offset) not in facts.commits_of:
                yield Violation(Kind.OFFSET_OF_NOBODY, f"{at}: {offset}")
