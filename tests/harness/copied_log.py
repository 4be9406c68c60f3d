"""Random copies of a log, as a resync fills them, with what each must hold."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random

from protocol.records.batch_header import BatchHeader, read_header, stamp
from protocol.records.control_record import ControlType, TransactionMarker, write_transaction_marker
from protocol.records.record_batch import build_control_batch
from protocol.wire.numbers import Epoch, Offset, ProducerId
from storage.files.errors import StorageError
from storage.files.files import remove_tree_durably
from storage.files.paths import copy_directory
from storage.log.log import PartitionLog
from storage.log.opening import plan_log
from storage.state.aborted_transactions import Row
from tests.harness.log_builder import batch_of, run_of
from tests.harness.log_home import LogHome, read_all
from tests.harness.log_transactions import TransactionModel, committed_offsets

PLAIN = (-1, -1, 7, 8)
TRANSACTIONAL = (11, 12, 13)


@dataclass(frozen=True, slots=True)
class Seen:
    """What of a log anyone can see; a log that was recovered from its segments must have the same."""

    start: int
    end: int
    last_stable: int
    records: tuple[tuple[int, int, bytes | None, bytes | None], ...]
    committed: tuple[int, ...]
    epochs: tuple[tuple[int, int], ...]
    producers: Mapping[int, tuple[int, object, int]]
    """By id: the epoch, the last batch, the first offset of the open transaction."""
    aborted: tuple[Row, ...]


def seen_of(log: PartitionLog) -> Seen:
    """Returns what is seen of a log."""
    return Seen(
        log.log_start_offset,
        log.log_end_offset,
        log.last_stable_offset,
        tuple((each.offset, each.timestamp, each.key, each.value) for each in read_all(log)),
        tuple(committed_offsets(log)),
        log.epochs.entries,
        {
            producer: (
                state.producer_epoch,
                state.batches[-1] if state.batches else None,
                state.current_txn_first_offset,
            )
            for producer, state in log.producers.items()
        },
        tuple(log._states.aborted.rows),
    )


def begin_copy(home: LogHome, log: PartitionLog, start_offset: int) -> PartitionLog:
    """Create an empty copy as `LogDirectory.begin_copy` does. It takes the log offline with itself."""

    def fail(error: StorageError) -> None:
        home.failures.append(error)
        log.go_offline(str(error))

    identity = dataclasses.replace(home.identity, directory=copy_directory(log.directory))
    home.fs.remove_tree(identity.directory)
    opening = home.opening(epoch=log.leader_epoch, is_clean=False, now_ms=0)
    opening = dataclasses.replace(opening, on_failure=fail)
    start = Offset(start_offset)
    copy = plan_log(home.fs, identity, log.config, opening, start_offset=start)
    copy.new_files.make()
    _ = copy.epochs, copy.producers
    return copy


def drop_copy(home: LogHome) -> None:
    """Remove a copy that has replaced its log or was not finished, as `LogDirectory.drop_copy` does."""
    home.background.run_all()
    remove_tree_durably(home.fs, copy_directory(home.identity.directory))


@dataclass(slots=True)
class CopiedLog:
    """A copy that is being filled, with the expectation."""

    log: PartitionLog
    random: Random
    now_ms: int = 1000
    records: dict[int, tuple[int, bytes | None, bytes | None]] = field(default_factory=dict)
    transactions: TransactionModel = field(default_factory=TransactionModel)
    sequences: dict[int, int] = field(default_factory=dict)
    sent: dict[int, list[tuple[BatchHeader, int]]] = field(default_factory=dict)

    @property
    def start(self) -> int:
        return self.log.log_start_offset

    @property
    def end(self) -> int:
        return self.log.log_end_offset

    def fill(self, batches: int, *, rest: Callable[[], None] = lambda: None) -> None:
        """Append that many batches; `rest` is called between them. The last ones may not be synced."""
        for _ in range(batches):
            step = self.random.choice(
                [self.append] * 5 + [self.append_in_transaction] * 4 + [self.end_transaction] * 3
                + [self.skip, self.roll, self.roll, self.sync]
            )  # fmt: skip
            step()
            rest()
        self.log.advance_high_watermark(self.log.log_end_offset)

    def sync(self) -> None:
        self.log.advance_high_watermark(self.log.sync())

    def roll(self) -> None:
        self.log.roll(self.now_ms)

    def skip(self) -> None:
        """The records at the end were cleaned at the source."""
        end = Offset(self.end + self.random.randrange(1, 6))
        self.log.appender.advance_end(end, now_ms=self.now_ms, leader_epoch=self._epoch())

    def append(self) -> None:
        producer = self.random.choice(PLAIN)
        self._append(producer, is_transactional=False)

    def append_in_transaction(self) -> None:
        producer = self.random.choice(TRANSACTIONAL)
        first, count = self._append(producer, is_transactional=True)
        self.transactions.send(producer, range(first, first + count))

    def end_transaction(self) -> None:
        """A marker, also for a producer that has nothing open."""
        producer, first = self.random.choice(TRANSACTIONAL), self._next_offset()
        is_commit = self.random.random() < 0.4
        kind = ControlType.COMMIT if is_commit else ControlType.ABORT
        marker = TransactionMarker(type=kind, coordinator_epoch=0)
        batch = build_control_batch(
            marker, timestamp=self.now_ms, producer_id=ProducerId(producer), producer_epoch=Epoch(0)
        )
        stamp(batch, base_offset=first, leader_epoch=self._epoch())
        self.log.appender.append_as_follower(run_of(batch), now_ms=self.now_ms)
        self.records[first] = (self.now_ms, *write_transaction_marker(marker))
        self.transactions.end(producer, first, is_commit=is_commit)

    def _append(self, producer: int, *, is_transactional: bool) -> tuple[int, int]:
        first, count = self._next_offset(), self.random.randrange(1, 4)
        pairs = [(b"key-%d" % self.random.randrange(6), b"copied") for _ in range(count)]
        sequence = self.sequences.get(producer, 0) if producer in (7, 8) else -1
        batch = batch_of(
            pairs,
            base_offset=first,
            leader_epoch=self._epoch(),
            timestamps=[self.now_ms] * count,
            producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1,
            base_sequence=sequence,
            is_transactional=is_transactional,
        )
        self.log.appender.append_as_follower(run_of(batch), now_ms=self.now_ms)
        if sequence >= 0:
            self.sequences[producer] = sequence + count
            self.sent.setdefault(producer, []).append((read_header(batch), first))
        for at, pair in enumerate(pairs, first):
            self.records[at] = (self.now_ms, *pair)
        return first, count

    def _next_offset(self) -> Offset:
        """The log's end, or a later one after a gap that compaction has left."""
        self.now_ms += self.random.randrange(50)
        return Offset(self.end + self.random.choice([0, 0, 0, 1, 4]))

    def _epoch(self) -> Epoch:
        """The last epoch or a later one, below that in which the log leads."""
        latest = max(self.log.epochs.latest, 0)
        return Epoch(
            self.random.choice([latest, self.random.randrange(latest, self.log.leader_epoch)])
        )
