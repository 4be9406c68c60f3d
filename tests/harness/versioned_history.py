"""A random history of a compacted log whose records have versions, and a model of its last values.

The model knows each record's rank from what it has sent. After every step it checks the log:

    the record of a key that outranks the others is there, unless it is a tombstone that may be gone
    where that tombstone is gone, so is every record of its key that was appended before its horizon
    below the clean offset each key has one record

The strategy may change, groups hold tombstones, transactions are committed or aborted, and DeleteRecords
comes at any time, also between the plan of a pass and its execution.
"""

from __future__ import annotations

import copy
import struct
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Self

from cleaner.pacing.settings import CleanerSettings
from cleaner.rules.hold import NO_HOLD, Hold
from cleaner.rules.pick import NOTHING
from protocol.records.record_batch import Codec, Record, build_batch
from protocol.wire.numbers import Epoch, Offset, ProducerId
from storage.files.errors import DamagedSidecar
from storage.formats.compaction_strategy import CompactionStrategy, Ranking
from storage.formats.log_config import LogConfig
from tests.harness.compacted_log import CONFIG, SETTINGS, CompactedLog
from tests.harness.examples import every
from tests.harness.log_builder import valid
from tests.harness.memory_fs import Loss, MemoryFileSystem
from tests.harness.sidecar_mode import SidecarMode
from tests.harness.table_digest import digest_of

HEADER = "version"
KEYS = [b"key-%d" % number for number in range(5)]
PRODUCERS = [7, 8]
CODECS = [Codec.NONE, Codec.NONE, Codec.LZ4]
UNREADABLE = [b"", b"12", struct.pack(">i", 7), b"123456789", None]
"""Values of the header that are no version."""
NO_VERSION = -(2**63)


@dataclass(frozen=True, slots=True)
class Sent:
    """A record that was appended."""

    offset: int
    timestamp: int
    version: int
    """That in its header."""
    is_tombstone: bool
    appended_ms: int

    def rank(self, ranking: Ranking) -> tuple[int, int]:
        versions = {
            Ranking.OFFSET: 0,
            Ranking.TIMESTAMP: self.timestamp,
            Ranking.HEADER: self.version,
        }
        return versions[ranking], self.offset


def strategy_by(ranking: Ranking) -> CompactionStrategy:
    """Returns the strategy; by header it is the one of the records here."""
    return CompactionStrategy(ranking, HEADER if ranking is Ranking.HEADER else "")


class VersionedHistory:
    """One history. `play` takes steps and checks the log after each."""

    tombstone_share = 0.3

    def __init__(self, seed: int, ranking: Ranking, *, map_slots: int = 1000) -> None:
        self.random = Random(f"{seed} {ranking.value}")
        self.strategy = strategy_by(ranking)
        self.log = self.new_log(replace(SETTINGS, dedupe_buffer_size=32 * map_slots))
        self.sent: dict[bytes, list[Sent]] = defaultdict(list)
        self.open: dict[int, list[tuple[bytes, Sent]]] = {}
        """The records of each producer's open transaction."""
        self.uncounted: set[int] = set()
        """Offsets of records in open and aborted transactions."""
        self.horizons: dict[int, int] = {}
        """The delete horizons of tombstones that were seen in the log, by offset."""
        self.has_resurrected = False
        """Whether a record has come back that was appended after its tombstone's horizon."""

    def new_log(self, settings: CleanerSettings) -> CompactedLog:
        return CompactedLog(self.config(), settings)

    def config(self) -> LogConfig:
        return replace(
            CONFIG,
            segment_bytes=self.random.choice([1, 300, 1500]),
            compaction_strategy=self.strategy.ranking.value,
            compaction_strategy_header=self.strategy.header,
        )

    # ---------------------------------------------------------------- steps

    def choices(self) -> list[tuple[Callable[[], None], int]]:
        """Returns the steps, each with its weight."""
        return [
            (self.append, 40), (self.roll, 14), (self.wait, 14), (self.clean, 18),
            (self.clean_as_picked, 8), (self.crash_in_a_pass, 6), (self.restart, 4),
            (self.change_strategy, 3), (self.delete_records, 3), (self.clean_what_is_deleted, 3),
            (self.append_in_transaction, 10), (self.end_transaction, 8), (self.change_hold, 3),
        ]  # fmt: skip

    def play(self, steps: int) -> None:
        actions, weights = zip(*self.choices(), strict=True)
        for _ in range(steps):
            (step,) = self.random.choices(actions, weights)
            step()
            self.check()

    def append(self) -> None:
        """Append a batch; some records come late, with a version below that of others."""
        records, sent = self._records()
        self.log.append_batch(valid(build_batch(records, codec=self.random.choice(CODECS))))
        for key, each in sent:
            self.sent[key].append(each)

    def append_in_transaction(self) -> None:
        """Append a batch to a transaction; until its end it ends what a pass may clean."""
        producer = self.random.choice(PRODUCERS)
        state = self.log.log.producers.get(ProducerId(producer))
        records, sent = self._records()
        batch = build_batch(
            records,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=state.batches[-1].last_sequence + 1 if state and state.batches else 0,
            is_transactional=True,
        )
        self.log.append_batch(valid(batch))
        self.open.setdefault(producer, []).extend(sent)
        self.uncounted |= {each.offset for _, each in sent}

    def end_transaction(self) -> None:
        """Commit or abort a transaction. Its records count from now on, or never."""
        if not self.open:
            return
        producer, is_commit = self.random.choice(sorted(self.open)), self.random.random() < 0.6
        self.log.log.appender.append_marker(
            ProducerId(producer),
            Epoch(0),
            is_commit=is_commit,
            coordinator_epoch=Epoch(0),
            now_ms=self.log.now_ms,
        )
        self.log.make_durable()
        for key, each in self.open.pop(producer):
            if is_commit:
                self.uncounted.discard(each.offset)
                self.sent[key].append(each)

    def _records(self) -> tuple[list[Record], list[tuple[bytes, Sent]]]:
        """Returns the records of a batch, and the model's view of them."""
        records, sent = list[Record](), list[tuple[bytes, Sent]]()
        first = self.log.log.log_end_offset
        for number in range(self.random.randint(1, 4)):
            key, is_tombstone = (
                self.random.choice(KEYS),
                self.random.random() < self.tombstone_share,
            )
            record, version = self._record(key, is_tombstone)
            records.append(replace(record, offset=number))
            times = record.timestamp, version, is_tombstone, self.log.now_ms
            sent.append((key, Sent(first + number, *times)))
        return records, sent

    def _record(self, key: bytes, is_tombstone: bool) -> tuple[Record, int]:
        number = self.random.randint(-3, 12)
        record = Record(
            offset=0,
            timestamp=self.random.randint(0, 12) * 1000,
            key=key,
            value=None if is_tombstone else b"v" * self.random.randint(1, 40),
        )
        if self.random.random() < 0.15:
            headers = self.random.choice([(), ((HEADER, self.random.choice(UNREADABLE)),)])
            return replace(record, headers=headers), NO_VERSION
        # Of several headers with the name the last one counts.
        before = self.random.choice(
            [(), ((HEADER, struct.pack(">q", 99)),), (("other", b"x" * 8),)]
        )
        headers = (*before, (HEADER, struct.pack(">q", number)))
        return replace(record, headers=headers), number

    def roll(self) -> None:
        self.log.roll()

    def wait(self) -> None:
        self.log.now_ms += self.random.randint(100, 900)

    def clean(self) -> None:
        """Run a pass, which must not change the digest unless a tombstone has gone too early for it."""
        before, self.has_resurrected = self.digest(), False
        report = self.log.execute(self.log.plan())
        self.check()
        after = self.digest()
        assert self.has_resurrected or before is None or after in (before, None)
        assert report.strategy == str(self.strategy)

    def clean_as_picked(self) -> None:
        self.log.clean_until_idle()

    def crash_in_a_pass(self) -> None:
        """Lose power at a random operation of a pass, and start again."""
        operation, left = self.random.randrange(60), list[MemoryFileSystem]()
        loss = self.random.choice([Loss.NOTHING, Loss.EVERYTHING, Loss.TORN])

        def look(_action: str, _path: str) -> None:
            nonlocal operation
            operation -= 1
            if operation == 0:
                left.append(self.log.fs.after_crash(loss, self.random))

        self.log.fs.on_operation = look
        self.log.execute(self.log.plan())
        self.log.fs.on_operation = None
        if left:
            self.log.fs = left[0]
        self.log.reopen(is_clean=False, loss=Loss.NOTHING)

    def change_strategy(self) -> None:
        """What the old one has dropped stays dropped; among the rest another record may win."""
        self.strategy = strategy_by(self.random.choice(list(Ranking)))
        self.log.log.update_config(self.config())
        self._forget_what_is_gone()

    def delete_records(self) -> None:
        """Move the log start, by DeleteRecords or retention. What lost against a deleted record stays
        dropped."""
        log = self.log.log
        offset = self.random.randint(log.log_start_offset, log.last_stable_offset)
        log.delete_records(Offset(offset))
        self._forget_what_is_gone()

    def clean_what_is_deleted(self) -> None:
        plan = self.log.plan()
        self.delete_records()
        self.log.execute(plan)

    def _forget_what_is_gone(self) -> None:
        offsets = {record.offset for record in self.log.records()}
        for key, sent in [*self.sent.items()]:
            self.sent[key] = [each for each in sent if each.offset in offsets]
            if not self.sent[key]:
                del self.sent[key]

    def change_hold(self) -> None:
        """A group that lags holds tombstones, or no longer does."""
        offset = self.random.randint(0, self.log.log.log_end_offset)
        self.log.hold = self.random.choice([NO_HOLD, Hold(offset=Offset(offset), by="group g")])

    def restart(self) -> None:
        self.log.reopen(is_clean=self.random.random() < 0.5, loss=Loss.TORN)
        self.log.must_cover = self.random.choice([NOTHING, self.log.log.log_end_offset])

    def crash_everywhere(self) -> int:
        """Lose power at operations of one pass, in a soak at each, in three ways, and start again. Each
        time the log must agree with the model, and so must what later passes leave. Returns the number
        of states, tried or not."""
        states = list[MemoryFileSystem]()

        def look(_action: str, _path: str) -> None:
            states.extend(self.log.fs.after_crash(loss, self.random) for loss in Loss)

        self.log.fs.on_operation = look
        self.log.execute(self.log.plan())
        self.log.fs.on_operation = None
        for fs in every(3, states):
            other = self._on(fs)
            other.check()
            other.log.clean_until_idle()
            other.check()
        return len(states)

    def _on(self, fs: MemoryFileSystem) -> Self:
        """Returns the same history on another disk."""
        other = copy.copy(self)
        other.log = copy.copy(self.log)
        other.log.fs = fs
        other.log.reopen(is_clean=False, loss=Loss.NOTHING)
        other.sent = defaultdict(list, {key: [*sent] for key, sent in self.sent.items()})
        other.horizons = dict(self.horizons)
        return other

    # ---------------------------------------------------------------- checking

    def digest(self) -> int | None:
        """Returns the digest of the last values now; None if more sidecars lie than it tolerates."""
        try:
            return digest_of(self.log).digest
        except DamagedSidecar:
            assert self.log.sidecars is SidecarMode.LYING
            return None

    def check(self) -> None:
        """Compare the log with the model."""
        left: dict[bytes, set[int]] = defaultdict(set)
        for record in self.log.records():
            if record.key in KEYS and record.offset not in self.uncounted:
                left[record.key].add(record.offset)
        for key, sent in [*self.sent.items()]:
            assert left[key] <= {each.offset for each in sent}
            winner = max(sent, key=lambda each: each.rank(self.strategy.ranking))
            self._check_key(key, winner, left[key])
        self._check_clean_section(left)
        self._note_horizons()

    def _check_key(self, key: bytes, winner: Sent, left: set[int]) -> None:
        if winner.offset in left:
            return
        assert winner.is_tombstone, f"{key!r}: its last value, {winner}, is gone"
        horizon = self.horizons[winner.offset]
        assert horizon <= self.log.now_ms, f"{key!r}: {winner} went before {horizon}"
        rest = [each for each in self.sent[key] if each.offset in left]
        late = [each for each in rest if each.appended_ms >= horizon]
        assert rest == late, f"{key!r}: {rest} came back when {winner} went"
        self.has_resurrected = self.has_resurrected or bool(late)
        # What is forgotten can no longer be compared with.
        self.sent[key] = rest
        if not rest:
            del self.sent[key]

    def _check_clean_section(self, left: dict[bytes, set[int]]) -> None:
        clean_offset = self.log.log.clean_offset
        for key, offsets in left.items():
            clean = {offset for offset in offsets if offset < clean_offset}
            assert len(clean) <= 1, f"{key!r}: {sorted(clean)} are all below the clean offset"

    def _note_horizons(self) -> None:
        horizons = {
            offset: header.delete_horizon_ms
            for header in self.log.headers()
            if header.delete_horizon_ms is not None
            for offset in range(header.base_offset, header.last_offset + 1)
        }
        self.horizons |= horizons
