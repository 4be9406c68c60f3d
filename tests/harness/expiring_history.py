"""A random history of a compacted log whose values expire, and a model of what must be left.

Producers append between any two steps of a sweep. The model judges each tombstone of a sweep when it is
appended:

    its key's last value has expired, and is the one that it names
    no record of an open transaction would become the last value instead

A sweep beside which nobody writes leaves no last value that has expired, but those that an open
transaction holds. Passes, restarts, crashes, transactions, DeleteRecords, and changes of the settings
happen as in `VersionedHistory`, which also checks that no value comes back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from cleaner.pool.expiries import Expiries
from cleaner.rules.expiry import NEVER, expires_ms
from cleaner.rules.latest import version_of
from protocol.records.record import Headers
from protocol.records.record_batch import Record
from storage.batches.validate import ValidBatch
from storage.files.errors import SegmentRemoved
from storage.formats.compaction_strategy import Ranking
from storage.formats.compaction_ttl import NO_TTL
from storage.formats.log_config import LogConfig
from storage.log.appender import Appended
from storage.log.log import PartitionLog
from tests.harness.compacted_log import CompactedLog
from tests.harness.expiry import nothing, sweep
from tests.harness.log_builder import records_in
from tests.harness.memory_fs import Loss, MemoryFileSystem
from tests.harness.versioned_history import Sent, VersionedHistory, strategy_by

TTL_HEADER = "ttl"
TIMES = [
    b"0",
    b"700",
    b"2500",
    b"9999999999999999999",
    b"12345678901234567890",
    b"",
    b"-1",
    b"1x",
    None,
]
"""Values of the header; the last five say nothing."""

BY_HEADER = strategy_by(Ranking.HEADER)


class HistoryClock:
    """The clock of a log in a test."""

    def __init__(self, log: CompactedLog) -> None:
        self._log = log

    def now_ms(self) -> int:
        return self._log.now_ms

    def monotonic(self) -> float:
        return self._log.now_ms / 1000


class ExpiringHistory(VersionedHistory):
    """One history. `play` takes steps and checks the log after each."""

    def __init__(self, seed: int, ranking: Ranking, *, map_slots: int = 1000) -> None:
        self.ttl_ms, self.has_header = 1000, True
        self.headers: dict[int, Headers] = {}
        """By offset, of the records that were appended."""
        super().__init__(seed, ranking, map_slots=map_slots)
        self.expiries = Expiries(HistoryClock(self.log))
        self.tombstones = 0
        """Those that sweeps have appended."""

    def config(self) -> LogConfig:
        header = TTL_HEADER if self.has_header else ""
        return replace(
            super().config(), compaction_ttl_ms=self.ttl_ms, compaction_ttl_header=header
        )

    def choices(self) -> list[tuple[Callable[[], None], int]]:
        return [
            *super().choices(),
            (self.change_ttl, 3),
            (self.append_in_transaction, 10),
            (self.end_transaction, 6),
            (self.wait, 10),
            (self.sweep, 30),
            (self.sweep_beside_producers, 20),
            (self.crash_in_a_sweep, 4),
        ]

    def change_ttl(self) -> None:
        self.ttl_ms = self.random.choice([NO_TTL, 0, 1000, 1000, 3000])
        self.has_header = self.random.random() < 0.7
        self.log.log.update_config(self.config())

    def _records(self) -> tuple[list[Record], list[tuple[bytes, Sent]]]:
        records, sent = super()._records()
        for record, (_, each) in zip(records, sent, strict=True):
            self.headers[each.offset] = record.headers
        return records, sent

    def _record(self, key: bytes, is_tombstone: bool) -> tuple[Record, int]:
        record, version = super()._record(key, is_tombstone)
        timestamp = self.log.now_ms - self.random.randint(-2000, 3000)
        if self.random.random() < 0.05:
            timestamp = -1
        headers = record.headers
        if self.random.random() < 0.3:
            headers = (*headers, (TTL_HEADER, self.random.choice(TIMES)))
        return replace(record, timestamp=timestamp, headers=headers), version

    # ---------------------------------------------------------------- sweeps

    def sweep(self) -> None:
        """Sweep while nobody writes."""
        due = self.expired_keys()
        if not self.log.log.config.expires_values:
            return
        moment_ms = self.expiries.facts(self.log.log).due_ms
        assert not due or moment_ms <= self.log.now_ms, f"{due} are due, but not before {moment_ms}"
        self.run_sweep(nothing)
        left = self.expired_keys()
        assert not left, f"{left} should have expired"

    def sweep_beside_producers(self) -> None:
        if self.log.log.config.expires_values:
            if not self.expired_keys():
                self.log.now_ms += 1500
            self.run_sweep(self.disturb)

    def disturb(self) -> None:
        """Write something, or not."""
        steps = [
            nothing, nothing, self.append, self.append, self.append, self.append_in_transaction,
            self.end_transaction, self.roll, self.delete_records, self.wait,
        ]  # fmt: skip
        self.random.choice(steps)()

    def crash_in_a_sweep(self) -> None:
        """Lose power at a random operation of a sweep, and start again."""
        if not self.log.log.config.expires_values:
            return
        operation, left = self.random.randrange(12), list[MemoryFileSystem]()
        loss = self.random.choice([Loss.NOTHING, Loss.EVERYTHING, Loss.TORN])

        def look(_action: str, _path: str) -> None:
            nonlocal operation
            operation -= 1
            if operation == 0:
                left.append(self.log.fs.after_crash(loss, self.random))

        self.log.fs.on_operation = look
        self.run_sweep(nothing)
        self.log.fs.on_operation = None
        if left:
            self.log.fs = left[0]
        self.log.reopen(is_clean=False, loss=Loss.NOTHING)
        end = self.log.log.log_end_offset
        for key, sent in self.sent.items():
            self.sent[key] = [each for each in sent if each.offset < end]

    def crash_in_every_step_of_a_sweep(self) -> int:
        """Lose power at each operation of one sweep and start again; each time the log must agree with
        the model, and so must what the next sweep leaves. Returns the number of states."""
        states = list[MemoryFileSystem]()

        def look(_action: str, _path: str) -> None:
            loss = self.random.choice([*Loss])
            states.append(self.log.fs.after_crash(loss, self.random))

        self.log.fs.on_operation = look
        self.run_sweep(nothing)
        self.log.fs.on_operation = None
        for fs in states:
            other = self._on(fs)
            other.expiries = Expiries(HistoryClock(other.log))
            end = other.log.log.log_end_offset
            for key, sent in other.sent.items():
                other.sent[key] = [each for each in sent if each.offset < end]
            other.check()
            other.sweep()
            other.log.clean_until_idle()
            other.check()
        return len(states)

    def run_sweep(self, between: Callable[[], None]) -> None:
        plan = self.expiries.plan(self.log.log, self.log.now_ms)
        try:
            report = sweep(self.log, plan=plan, between=between, append=self._append_judged)
        except SegmentRemoved:
            self.expiries.stopped(self.log.log, 0.0)
        else:
            self.expiries.completed(self.log.log, plan, report)

    def _append_judged(self, _log: PartitionLog, batch: ValidBatch) -> Appended:
        """Append a batch of tombstones, each of which must be right at this moment."""
        for record in records_in(bytes(batch.view)):
            assert record.key is not None
            assert record.value is None
            (named,) = [value for name, value in record.headers if name == "kompakt.expired"]
            value = self.last_value(record.key)
            assert value is not None, f"{record} for a key without a value"
            assert named == b"%d" % value.offset, f"{record}, but the last value is {value}"
            assert self.expires_ms(value) <= self.log.now_ms, (
                f"{record} comes too early for {value}"
            )
            assert not self.is_held(record.key, value), f"{record} beside {self.open}"
        appended = self.log.append_batch(batch)
        for number, record in enumerate(records_in(bytes(batch.view))):
            assert record.key is not None
            offset = appended.base_offset + number
            assert offset < appended.next_offset
            version = version_of(BY_HEADER, timestamp=record.timestamp, headers=record.headers)
            tombstone = Sent(offset, record.timestamp, version, True, self.log.now_ms)
            self.sent[record.key].append(tombstone)
            self.tombstones += 1
        return appended

    # ---------------------------------------------------------------- the model

    def last_value(self, key: bytes) -> Sent | None:
        """Returns the record that is a key's last one, if it has a value."""
        if not self.sent.get(key):
            return None
        winner = max(self.sent[key], key=lambda each: each.rank(self.strategy.ranking))
        return None if winner.is_tombstone else winner

    def expires_ms(self, value: Sent) -> int:
        return expires_ms(
            self.log.log.config.ttl,
            timestamp=value.timestamp,
            headers=self.headers[value.offset],
        )

    def is_held(self, key: bytes, value: Sent) -> bool:
        """Returns whether an open transaction may replace a value."""
        ranking = self.strategy.ranking
        return any(
            its == key and each.rank(ranking) > value.rank(ranking)
            for records in self.open.values()
            for its, each in records
        )

    def expired_keys(self) -> list[tuple[bytes, Sent]]:
        """Returns the keys whose last value a sweep must find now."""
        if not self.log.log.config.expires_values:
            return []
        stable = self.log.log.last_stable_offset
        return [
            (key, value)
            for key in [*self.sent]
            if (value := self.last_value(key)) is not None
            and self.expires_ms(value) <= min(self.log.now_ms, NEVER - 1)
            and value.offset < stable
            and not self.is_held(key, value)
        ]
