"""What can be done to a log, and what a plain list of records is after it."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any, NamedTuple

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from protocol.records.control_record import ControlType, TransactionMarker, write_transaction_marker
from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Epoch, Offset, ProducerId
from storage.batches.validate import Refused
from storage.files.errors import SwapRefused
from storage.log.appender import Appended
from storage.state.producer_state import BATCHES_KEPT
from tests.harness.hand_cleaning import recopied, write_cleaned
from tests.harness.log_builder import batch_of, run_of, valid
from tests.harness.log_home import SMALL, Deferred, LogHome
from tests.harness.log_transactions import TransactionModel
from tests.harness.memory_fs import Loss, MemoryFileSystem

Pairs = list[tuple[bytes | None, bytes | None]]

PRODUCERS = st.sampled_from([7, 8])
TRANSACTIONAL = st.sampled_from([11, 12])
PAIRS = st.lists(
    st.tuples(st.sampled_from([b"a", b"b", b"c"]), st.one_of(st.none(), st.binary(max_size=60))),
    min_size=1,
    max_size=4,
)


RETAINING = replace(SMALL, cleanup_policy=("delete",), retention_ms=-1)


class Sent(NamedTuple):
    """A batch of an idempotent producer, and where it stands in the log."""

    batch: bytes
    base: int
    end: int


class LogOperations(RuleBasedStateMachine):
    """`records` is the model: (timestamp, key, value) by offset, of all batches in the log."""

    @initialize(inline=st.booleans())
    def begin(self, inline: bool) -> None:
        self.disk = MemoryFileSystem()
        self.home = LogHome(self.disk, background=Deferred(inline=inline))
        self.epoch = 1
        self.now_ms = 0
        self.clock = 1000
        self.log = self.home.create(epoch=1)
        self.records: dict[int, tuple[int, bytes | None, bytes | None]] = {}
        self.batches: list[tuple[int, int]] = []
        self.epochs: list[tuple[int, int, int]] = []
        """Epoch, first offset and end of every batch with records that was appended."""
        self.config = SMALL
        self.sequences: dict[int, int] = {}
        self.sent: dict[int, list[Sent]] = {}
        """What each idempotent producer has sent, as far as the log must know it."""
        self.transactions = TransactionModel()
        self.decided_to = 0
        """Below it a pass has taken records of transactions that were decided; no cut goes so far."""
        self.start = 0
        self.end = 0

    @rule(pairs=PAIRS, step=st.integers(-5, 5))
    def append(self, pairs: Pairs, step: int) -> None:
        self.clock += step
        self._append(pairs)

    def _append(self, pairs: Pairs, **producer: Any) -> bytes:
        times = range(self.clock, self.clock + len(pairs))
        batch = batch_of(pairs, timestamps=times, **producer)
        sent = bytes(batch)
        appended = self.log.appender.append_as_leader(valid(batch), now_ms=self.now_ms)
        assert appended == Appended(Offset(self.end), Offset(self.end + len(pairs)))
        for at, (key, value) in enumerate(pairs):
            self.records[self.end + at] = (times[at], key, value)
        self._appended(self.end, self.end + len(pairs))
        return sent

    def _appended(self, base: int, end: int) -> None:
        self.batches.append((base, end))
        self.epochs.append((self.epoch, base, end))
        self.end = end

    @rule(producer=PRODUCERS, pairs=PAIRS)
    def append_idempotently(self, producer: int, pairs: Pairs) -> None:
        """The next batch of a producer."""
        sequence, base = self.sequences.get(producer, 0), self.end
        batch = self._append(pairs, producer_id=producer, producer_epoch=0, base_sequence=sequence)
        self.sequences[producer] = sequence + len(pairs)
        self.sent.setdefault(producer, []).append(Sent(batch, base, self.end))

    @rule(producer=TRANSACTIONAL, pairs=PAIRS)
    def append_in_transaction(self, producer: int, pairs: Pairs) -> None:
        """A batch of a producer that has a transaction open, or begins one."""
        self.transactions.send(producer, range(self.end, self.end + len(pairs)))
        self._append(pairs, producer_id=producer, producer_epoch=0, is_transactional=True)

    @rule(producer=TRANSACTIONAL, is_commit=st.booleans())
    def end_transaction(self, producer: int, is_commit: bool) -> None:
        """A marker, also for a producer that has nothing open."""
        appended = self.log.appender.append_marker(
            ProducerId(producer),
            Epoch(0),
            is_commit=is_commit,
            coordinator_epoch=Epoch(0),
            now_ms=self.clock,
        )
        assert appended == Appended(Offset(self.end), Offset(self.end + 1))
        kind = ControlType.COMMIT if is_commit else ControlType.ABORT
        record = write_transaction_marker(TransactionMarker(type=kind, coordinator_epoch=0))
        self.records[self.end] = (self.clock, *record)
        self.transactions.end(producer, self.end, is_commit=is_commit)
        self._appended(self.end, self.end + 1)

    @rule(producer=PRODUCERS, back=st.integers(0, 6))
    def send_again(self, producer: int, back: int) -> None:
        """One of the last five batches is answered as the first time, and not written again."""
        sent = self.sent.get(producer, [])
        if back >= len(sent):
            return
        again = sent[-1 - back]
        answer = self.log.appender.append_as_leader(
            valid(bytearray(again.batch)), now_ms=self.now_ms
        )
        if back < BATCHES_KEPT:
            assert answer == Appended(Offset(again.base), Offset(again.end), duplicate=True)
        else:
            assert isinstance(answer, Refused)
            assert answer.error_code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    @rule(producer=PRODUCERS, pairs=PAIRS, gap=st.integers(1, 3))
    def skip_a_sequence(self, producer: int, pairs: Pairs, gap: int) -> None:
        """What does not follow is refused, and nothing is written."""
        if not self.sent.get(producer):
            return
        sequence = self.sequences[producer] + gap
        batch = batch_of(pairs, producer_id=producer, producer_epoch=0, base_sequence=sequence)
        answer = self.log.appender.append_as_leader(valid(batch), now_ms=self.now_ms)
        assert isinstance(answer, Refused)
        assert answer.error_code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def _learn_producers(self, *, may_forget: bool) -> None:
        """Continue with each producer as the log knows it; it knows all of them unless it may forget."""
        for producer, sent in self.sent.items():
            state = self.log.producers.get(ProducerId(producer))
            count = len(state.batches) if state is not None else 0
            assert may_forget or count >= min(len(sent), BATCHES_KEPT)
            if state is not None and state.batches:
                self.sequences[producer] = state.batches[-1].last_sequence + 1
            if may_forget:
                del sent[: len(sent) - count]

    @rule(run=st.lists(st.tuples(PAIRS, st.integers(0, 4)), min_size=1, max_size=5))
    def append_as_follower(self, run: list[tuple[Pairs, int]]) -> None:
        """Batches in one run, each with a gap before it."""
        batches, begin = [], self.end + run[0][1]
        for pairs, gap in run:
            base = self.end + gap
            batches.append(batch_of(pairs, base_offset=base, leader_epoch=self.epoch))
            for at, (key, value) in enumerate(pairs):
                self.records[base + at] = (1000 + at, key, value)
            self._appended(base, base + len(pairs))
        appended = self.log.appender.append_as_follower(run_of(*batches), now_ms=self.now_ms)
        assert appended == Appended(Offset(begin), Offset(self.end))

    @rule(gap=st.integers(0, 3))
    def advance_end(self, gap: int) -> None:
        self.log.appender.advance_end(Offset(self.end + gap))
        if gap:
            self.batches.append((self.end, self.end + gap))
        self.end += gap

    @rule()
    def sync(self) -> None:
        end = self.log.sync()
        assert end == self.end
        self.log.advance_high_watermark(end)

    @rule()
    def roll(self) -> None:
        self.log.roll(self.now_ms)

    @rule(later_ms=st.sampled_from([1, 1000, 8 * 24 * 3600 * 1000]))
    def time_passes(self, later_ms: int) -> None:
        self.now_ms += later_ms
        self.log.roll_if_due(self.now_ms)
        self._learn_producers(may_forget=True)

    @rule()
    def checkpoint(self) -> None:
        work = self.log.checkpoint(grown_bytes_min=1)
        if work is not None:
            work()

    @rule(
        policy=st.sampled_from([("compact",), ("delete",), ("compact", "delete"), ()]),
        segment_bytes=st.sampled_from([300, 700, 2000]),
        index_interval_bytes=st.sampled_from([0, 100, 1000]),
    )
    def change_config(
        self, policy: tuple[str, ...], segment_bytes: int, index_interval_bytes: int
    ) -> None:
        generation, before = self.log.generation, self.config.cleanup_policy
        self.config = replace(
            SMALL,
            cleanup_policy=policy,
            segment_bytes=segment_bytes,
            index_interval_bytes=index_interval_bytes,
            retention_ms=-1,
        )
        self.home.config = self.config
        self.log.update_config(self.config)
        assert (self.log.generation > generation) == (policy != before)

    @rule()
    def work_in_background(self) -> None:
        self.home.background.run_all()

    @rule(seed=st.integers(0, 1 << 20), is_stale=st.booleans())
    def swap(self, seed: int, is_stale: bool) -> None:
        random = Random(seed)
        view = self.log.cleaning_view()
        ready = [each for each in view.segments if each.row.end_offset <= view.high_watermark]
        if not ready:
            return
        first = random.randrange(len(ready))
        sources = ready[first : first + random.randrange(1, 4)]
        aborted = self.transactions.aborted(view.high_watermark)
        kept = self.transactions.undecided(view.high_watermark) | self.transactions.markers
        batches, dropped = recopied(
            sources,
            lambda each: (
                each.offset in kept or (each.offset not in aborted and random.random() < 0.5)
            ),
            view.producer_last_offsets,
        )
        cut = random.randrange(len(batches) + 1)
        cleaned = write_cleaned(self.log, sources, batches, cut=cut)
        rows = [each.row for each in sources]
        if is_stale:
            with pytest.raises(SwapRefused):
                self.log.cleaning.swap(
                    rows, cleaned, generation=view.generation - 1, clean_offset=None
                )
            return
        self.log.cleaning.swap(rows, cleaned, generation=view.generation, clean_offset=None)
        with pytest.raises(SwapRefused):
            self.log.cleaning.swap(rows, cleaned, generation=view.generation, clean_offset=None)
        self.decided_to = max(self.decided_to, self.transactions.marker_of_any(dropped) + 1)
        for offset in dropped:
            # Below the log start a segment may hold records that are deleted.
            self.records.pop(offset, None)

    @rule(left=st.integers(0, 1500))
    def retain(self, left: int) -> None:
        """Keep only so many bytes; a compacted log's policy says so for once."""
        before = self.log.segments
        self.log.update_config(replace(RETAINING, retention_bytes=left))
        if self.log.retention_is_due(self.now_ms):
            self.log.retain(self.now_ms)
        self.log.update_config(self.config)
        start = self.log.log_start_offset
        assert start in {self.start, *(segment.end_offset for segment in before)}
        assert self.start <= start <= self.log.high_watermark
        self._start_at(start)

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        bound = self.log.high_watermark
        offset = data.draw(st.integers(max(0, self.start - 2), bound + 2))
        deleted = self.log.delete_records(Offset(offset))
        if offset > bound:
            assert deleted is ErrorCode.OFFSET_OUT_OF_RANGE
        else:
            self._start_at(max(self.start, offset))

    def _start_at(self, start: int) -> None:
        self.start = start
        self.records = {at: record for at, record in self.records.items() if at >= start}

    @rule(back=st.integers(0, 12))
    def truncate_to(self, back: int) -> None:
        offset = max(self.start, self.decided_to, self.end - back)
        generation = self.log.generation
        self.log.truncate_to(Offset(offset))
        if offset == self.end:
            return
        assert self.log.generation > generation
        end = self.log.log_end_offset
        # Whole batches go; how far the end moves below `offset` is where such a batch began.
        crossing = [max(base, self.start) for base, stop in self.batches if base < offset < stop]
        assert end in {offset, *crossing}
        self.end = end
        self.batches = [batch for batch in self.batches if batch[1] <= end]
        self.epochs = [each for each in self.epochs if each[2] <= end]
        self.records = {at: record for at, record in self.records.items() if at < end}
        # A log that is cut to nothing starts over.
        self.transactions.cut(end if self.start < end else 0)
        self._forget_producers()

    def _forget_producers(self) -> None:
        """Of what was sent, the log may know a part that is left."""
        self.sent = {producer: [] for producer in self.sent}
        for producer in self.sent:
            state = self.log.producers.get(ProducerId(producer))
            batches = state.batches if state is not None else ()
            self.sequences[producer] = batches[-1].last_sequence + 1 if batches else 0

    @rule(ahead=st.integers(0, 5))
    def truncate_fully(self, ahead: int) -> None:
        self.start = self.end = self.end + ahead
        self.log.truncate_fully_and_start_at(Offset(self.start))
        self.records, self.batches, self.epochs = {}, [], []
        self.transactions.cut(0)
        self._forget_producers()

    @rule()
    def stop_cleanly(self) -> None:
        self.home.background.run_all()
        self.log.close()
        self.disk = self.home.fs = self.disk.after_crash(Loss.EVERYTHING, Random(0))
        self._open(is_clean=True)

    @rule()
    def lose_the_process(self) -> None:
        """kill -9: what was written is there, what waited in the background is not."""
        self.home.background.waiting.clear()
        self.disk = self.home.fs = self.disk.after_crash(Loss.NOTHING, Random(0))
        self._open(is_clean=False)
        # Where the log start has moved, batches between a snapshot and it may be unknown.
        self._learn_producers(may_forget=self.start > 0)

    def _open(self, *, is_clean: bool) -> None:
        before = (self.log.log_start_offset, self.log.log_end_offset)
        self.epoch += 1
        self.log = self.home.open(epoch=self.epoch, is_clean=is_clean, now_ms=self.now_ms)
        assert (self.log.log_start_offset, self.log.log_end_offset) == before
        assert self.log.high_watermark == self.log.log_end_offset
