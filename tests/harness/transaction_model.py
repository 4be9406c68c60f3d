"""A correct broker in a few lines: generates histories that exactly-once allows.

A feeder writes `input` in transactions; each group copies it into `journal`, which keeps everything,
and into `table`, which is compacted. Programs are killed, and answers are lost.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field, replace

from tests.harness.transaction_history import (
    GroupPlace,
    History,
    Outcome,
    Place,
    RecordId,
    Seen,
    Sent,
    Snapshot,
    Transaction,
)

PARTITIONS = 2
GROUPS = ("red", "green")
KEYS = 4


@dataclass
class Model:
    """The logs, the groups' offsets, and the knowledge of programs and readers."""

    random: random.Random
    logs: dict[Place, list[Seen]] = field(default_factory=lambda: defaultdict(list))
    ends: dict[Place, int] = field(default_factory=lambda: defaultdict(int))
    open: dict[str, Transaction] = field(default_factory=dict)
    """By producer."""
    aborted: set[str] = field(default_factory=set)
    transactions: dict[str, Transaction] = field(default_factory=dict)
    offsets: dict[GroupPlace, int] = field(default_factory=dict)
    snapshots: list[Snapshot] = field(default_factory=list)
    looks: list[dict[GroupPlace, int]] = field(default_factory=list)

    def begin(self, producer: str, group: str | None) -> None:
        serial = len(self.transactions)
        self.open[producer] = Transaction(f"{producer}.{serial}", producer, serial, group)
        self._know(self.open[producer])

    def send(self, producer: str, sent: Sent) -> None:
        transaction = self.open[producer]
        record_id: RecordId = (transaction.name, len(transaction.sent))
        offset = self.ends[sent.place]
        self.logs[sent.place].append(Seen(offset, record_id, sent.key))
        self.ends[sent.place] += 1
        known = replace(sent, offset=self.random.choice([offset, offset, None]))
        self.open[producer] = replace(transaction, sent=(*transaction.sent, known))
        self._know(self.open[producer])

    def handle(self, producer: str, place: Place) -> None:
        """Copy the next record of an input partition, in the transaction."""
        transaction = self.open[producer]
        at = (str(transaction.group), place)
        start = transaction.offsets.get(place, self.offsets.get(at, 0))
        due = [seen for seen in self.visible(place) if seen.offset >= start][:2]
        for seen in due:
            source = (place, seen.offset)
            for topic in ("journal", "table"):
                to = (topic, self.random.randrange(PARTITIONS))
                self.send(producer, Sent(to, seen.key, source))
        if due:
            offsets = {**self.open[producer].offsets, place: due[-1].offset + 1}
            self.open[producer] = replace(self.open[producer], offsets=offsets)
            self._know(self.open[producer])

    def end(self, producer: str) -> None:
        """Commit or abort; the program may not get the answer."""
        transaction = self.open.pop(producer)
        for place in {sent.place for sent in transaction.sent}:
            self.ends[place] += 1
        is_heard = self.random.random() < 0.7
        if self.random.random() < 0.6:
            for place, offset in transaction.offsets.items():
                self.offsets[str(transaction.group), place] = offset
            outcome = Outcome.COMMITTED if is_heard else Outcome.UNKNOWN
        else:
            self.aborted.add(transaction.name)
            outcome = Outcome.ABORTED if is_heard else Outcome.UNKNOWN
        self._know(replace(transaction, outcome=outcome))

    def clean(self) -> None:
        """Remove some superseded records."""
        for partition in range(PARTITIONS):
            place = ("table", partition)
            last = {seen.key: seen.offset for seen in self.visible(place)}
            self.logs[place] = [
                seen
                for seen in self.logs[place]
                if seen.offset >= last.get(seen.key, 0) or self.random.random() < 0.3
            ]

    def look(self) -> None:
        """Let a reader read everything and fetch the groups' offsets."""
        places = list(self.ends)
        records = {place: self.visible(place) for place in places}
        ends = {place: self._stable(place) for place in places}
        self.snapshots.append(Snapshot(f"reader {len(self.snapshots)}", ends, records))
        self.looks.append(dict(self.offsets))

    def visible(self, place: Place) -> list[Seen]:
        return [
            seen
            for seen in self.logs[place]
            if seen.offset < self._stable(place) and seen.record_id[0] not in self.aborted
        ]

    def _stable(self, place: Place) -> int:
        undecided = {transaction.name for transaction in self.open.values()}
        firsts = (seen.offset for seen in self.logs[place] if seen.record_id[0] in undecided)
        return min(firsts, default=self.ends[place])

    def _know(self, transaction: Transaction) -> None:
        self.transactions[transaction.name] = transaction

    def history(self) -> History:
        return History(
            dict(self.transactions), self.snapshots, self.looks, compacted=frozenset({"table"})
        )


def good_history(seed: int, steps: int = 60) -> History:
    """Returns a history of the model, at rest at its end."""
    choices = random.Random(seed)
    model = Model(choices)
    # Each group has one program per input partition, so no other handles it meanwhile.
    workers = [(group, partition) for group in GROUPS for partition in range(PARTITIONS)]
    for _ in range(steps):
        if choices.random() < 0.3:
            feed(model)
        group, partition = choices.choice(workers)
        producer = f"{group}-{partition}"
        if producer not in model.open:
            model.begin(producer, group)
        elif choices.random() < 0.6:
            model.handle(producer, ("input", partition))
        else:
            model.end(producer)
        if choices.random() < 0.2:
            choices.choice([model.look, model.clean])()
    for producer in list(model.open):
        model.end(producer)
    model.look()
    model.clean()
    model.look()
    return model.history()


def feed(model: Model) -> None:
    """Let the feeder send some records, or end its transaction."""
    if "feeder" not in model.open:
        model.begin("feeder", None)
    for _ in range(model.random.randrange(4)):
        place = ("input", model.random.randrange(PARTITIONS))
        model.send("feeder", Sent(place, f"key-{model.random.randrange(KEYS)}"))
    if model.random.random() < 0.5:
        model.end("feeder")
