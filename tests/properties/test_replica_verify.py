"""A mirror equals its source however both were cleaned; one record that differs is found and named."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.records.record_batch import Codec, Record
from server.replication.verify.verdict import Verdict
from tests.harness.compacted_log import CONFIG
from tests.harness.compared_logs import ComparedLogs
from tests.harness.log_transactions import committed_offsets
from tests.harness.table_digest import live_keys, table_digest
from tests.harness.transactional_producer import TransactionalProducer

KEYS = [b"k%d" % number for number in range(30)]
SMALL = replace(CONFIG, segment_bytes=800, delete_retention_ms=60_000)
RETENTION_MS = SMALL.delete_retention_ms


class History:
    """Writes to a source at random, and lets both sides clean."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.logs = ComparedLogs(SMALL)
        self.producers: dict[int, TransactionalProducer] = {}

    def write(self, steps: int) -> None:
        """Append to the source, in transactions and without."""
        for _ in range(steps):
            self.logs.pass_time(self.random.choice((1, 20, 200)))
            choice, source = self.random.random(), self.logs.source
            number = self.random.randrange(3)
            if choice < 0.6:
                source.append(*self._pairs(), codec=self.random.choice(list(Codec)))
            elif choice < 0.8:
                producer = self.producers.setdefault(number, TransactionalProducer(source, number))
                producer.send(*self._pairs(), codec=self.random.choice(list(Codec)))
            elif number in self.producers:
                producer = self.producers[number]
                self.random.choice((producer.commit, producer.abort))()

    def _pairs(self) -> list[tuple[bytes, bytes | None]]:
        count = self.random.randrange(1, 4)
        return [(self.random.choice(KEYS), self._value()) for _ in range(count)]

    def _value(self) -> bytes | None:
        return None if self.random.random() < 0.25 else self.random.randbytes(20).hex().encode()

    def settle(self) -> None:
        """End all transactions."""
        for number in sorted(self.producers):
            self.producers[number].commit()

    def clean(self) -> None:
        """Clean one side, so long after that tombstones may go."""
        self.logs.pass_time(self.random.choice((1, RETENTION_MS + 1)))
        self.random.choice((self.logs.source, self.logs.mirror)).clean()

    def happen(self) -> None:
        """Write, copy and clean while the logs are read, in less time than tombstones are kept."""
        choice = self.random.random()
        if choice < 0.1:
            self.write(2)
        elif choice < 0.2:
            self.logs.copy()
        elif choice < 0.3:
            self.random.choice((self.logs.source, self.logs.mirror)).clean()


@given(seed=st.integers(0, 1 << 32))
@settings(deadline=None, max_examples=60)
def test_two_logs_that_were_cleaned_at_different_times_are_equal(seed: int) -> None:
    history = History(seed)
    logs, random = history.logs, history.random
    for _ in range(random.randrange(1, 5)):
        history.write(random.randrange(20))
        logs.copy()
        for _ in range(random.randrange(3)):
            history.clean()
    history.settle()
    logs.copy()
    expected = table_digest(committed(logs)), live_keys(committed(logs))

    judged = asyncio.run(logs.verify(memory_bytes=random.choice((1024, 1 << 16))))

    assert judged.verdict is Verdict.EQUAL, judged
    found = [(each.digest, each.count) for each in logs.progress.found.sides]
    assert found == [expected, expected]


def committed(logs: ComparedLogs) -> list[Record]:
    """Returns the records that a consumer of the mirror gets with read_committed."""
    offsets = set(committed_offsets(logs.mirror.log))
    return [each for each in logs.mirror.records() if each.offset in offsets]


@given(seed=st.integers(0, 1 << 32))
@settings(deadline=None, max_examples=60)
def test_writes_and_passes_while_it_reads_make_no_difference(seed: int) -> None:
    history = History(seed)
    logs = history.logs
    history.write(30)
    logs.copy()
    history.clean()

    judged = asyncio.run(logs.verify(wait_seconds=50, happens=history.happen))

    assert judged.verdict is not Verdict.DIFFERENT, judged


@pytest.mark.parametrize("damage", ["changed", "lost", "extra"])
@given(seed=st.integers(0, 1 << 32))
@settings(deadline=None, max_examples=25)
def test_one_record_that_differs_is_found_and_named(damage: str, seed: int) -> None:
    history = History(seed)
    logs, random = history.logs, history.random
    history.write(20)
    logs.source.append((b"victim", b"1"), (KEYS[0], b"1"))
    at = logs.source.log.log_end_offset - 2
    history.write(20)
    history.settle()

    def change(record: Record) -> Record | None:
        if record.offset != at:
            return record
        if damage == "changed":
            return replace(record, value=b"2")
        return None if damage == "lost" else replace(record, key=b"stranger")

    logs.copy(change)
    for _ in range(random.randrange(4)):
        history.clean()

    judged = asyncio.run(logs.verify(memory_bytes=random.choice((1024, 1 << 16))))

    assert judged.verdict is Verdict.DIFFERENT, judged
    named = {b"victim", b"stranger"} if damage == "extra" else {b"victim"}
    assert set(logs.keys.values()) <= named
    assert sum(logs.progress.found.counts) == len(named)
    assert (logs.progress.found.first_offset, logs.progress.found.last_offset) == (at, at)
