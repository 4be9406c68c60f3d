"""A random history of one log, and what a crash may leave of it at any moment.

Each step does something to the log and keeps the expectation in pace: `records` and `start` are what it
holds, `synced_end` is what was acknowledged. A step that replaces what the log holds (a swap, a
truncation) first sets `other` to what it leads to: a crash in its middle leaves one or the other.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from protocol.records.batch_header import BatchHeader, read_header
from protocol.records.control_record import ControlType, TransactionMarker, write_transaction_marker
from protocol.wire.numbers import Epoch, Offset, ProducerId
from storage.files.errors import SwapRefused
from storage.formats.config_property import LONG_MAX
from storage.formats.manifest import SegmentRow
from storage.log.appender import Appended
from storage.log.log import PartitionLog
from storage.log.retention import decide_retention
from storage.segment.cleaned_segment import CleanedSegment, discard_staged
from storage.segment.key_sidecar_writer import KeySidecarWriter
from storage.state.producer_state import Duplicate
from tests.crash.expected import Content, Possible, check_content, read_content
from tests.harness.hand_cleaning import recopied, write_cleaned
from tests.harness.key_blocks import blocks_of, check_sidecar, totals_of
from tests.harness.log_builder import batch_of, valid
from tests.harness.log_home import Deferred, LogHome
from tests.harness.log_transactions import TransactionModel
from tests.harness.memory_fs import Loss, MemoryFileSystem

STEPS = 60
KEYS = [f"key-{number}".encode() for number in range(6)]
TRANSACTIONAL = [11, 12, 13]
APPENDS = ("append", "append_in_transaction", "end_transaction")
POLICIES = [(), ("compact",), ("delete",), ("compact", "delete")]


@dataclass(frozen=True, slots=True)
class PlannedPass:
    """Cleaned segments that wait for their swap."""

    sources: list[SegmentRow]
    cleaned: list[CleanedSegment]
    dropped: set[int]
    generation: int
    changes: int
    """Of the workload, when the pass was planned."""

    def has_its_sources(self, log: PartitionLog) -> bool:
        """Whether every source is still in the log."""
        there = {(segment.base_offset, segment.file_version) for segment in log.segments}
        return all((row.base_offset, row.file_version) in there for row in self.sources)

    def swap(self, log: PartitionLog, clean_offset: Offset | None) -> None:
        """Ask the log for the swap."""
        log.cleaning.swap(
            self.sources, self.cleaned, generation=self.generation, clean_offset=clean_offset
        )

    def discard(self, home: LogHome) -> None:
        """Remove what was written."""
        for each in self.cleaned:
            row = each.row
            discard_staged(home.fs, home.identity.directory, row.base_offset, row.file_version)


class Workload:
    """One history. `observe` is called with action and path after each operation of the disk."""

    def __init__(self, seed: int, observe: Callable[[str, str], None]) -> None:
        self.random = Random(seed)
        self.crash_random = Random(seed + 1_000_003)
        self.observe = observe
        self.disk = MemoryFileSystem()
        self.background = Deferred(inline=False)
        self.home = LogHome(self.disk, background=self.background)
        self.hash_key = self.home.identity.hash_key
        self.epoch = 1
        self.now_ms = 10_000
        self.what = "create"
        self.records: Content = {}
        self.start = 0
        self.synced_end = 0
        self.other: tuple[Content, int, int] | None = None
        """What the log holds once the operation under way is done: records, start, synced end."""
        self.log_end = 0
        """The log's end when the operation under way began."""
        self.planned: PlannedPass | None = None
        self.indexing: tuple[KeySidecarWriter, bytes] | None = None
        """A key sidecar that has its blocks, but no trailer yet; and what its segment held."""
        self.changes = 0
        """How often the log was truncated or changed its policy: what a planned pass cannot outlive."""
        self.transactions = TransactionModel()
        self.decided_to = 0
        """Below it a pass has taken records of transactions that were decided; no cut goes so far."""
        self.sequences: dict[int, int] = {}
        self.sent: dict[int, list[tuple[BatchHeader, int]]] = {}
        self.log = self.home.create(epoch=self.epoch)
        self.disk.sync_directory("/data/orders/0")

    def steps(self) -> list[tuple[Callable[[], None], int]]:
        """What may come next, and how often it does."""
        return [
            (self.append, 30),
            (self.append_in_transaction, 14),
            (self.end_transaction, 9),
            (self.sync, 12),
            (self.roll, 6),
            (self.background.run_one, 12),
            (self.background.run_all, 3),
            (self.swap, 7),
            (self.plan_pass, 7),
            (self.commit_pass, 6),
            (self.commit_clean_offset, 2),
            (self.begin_keys, 6),
            (self.finish_keys, 9),
            (self.drop_keys, 2),
            (self.change_policy, 4),
            (self.checkpoint, 6),
            (self.retain, 3),
            (self.delete_records, 2),
            (self.truncate, 2),
            (self.truncate_fully, 1),
            (self.restart, 2),
            (self.crash_and_go_on, 2),
            (self.end_process_and_go_on, 1),
        ]

    def play(self) -> None:
        """Live through the whole history."""
        self.disk.on_operation = self.observe
        steps, weights = zip(*self.steps(), strict=True)
        for _ in range(STEPS):
            self.now_ms += self.random.randrange(1000)
            (step,) = self.random.choices(steps, weights)
            self.what = getattr(step, "__name__", "background")
            self.log_end = self.log.log_end_offset
            self.take(step)

    def take(self, step: Callable[[], None]) -> None:
        """Take one step; the disk works."""
        step()
        assert not self.home.failures, self.home.failures

    # ---------------------------------------------------------------- what a crash may leave

    def possible(self) -> list[Possible]:
        """The contents that a crash may leave now."""
        end = self.log.log_end_offset
        if self.what in APPENDS or self.what in ("truncate", "truncate_fully"):
            end = Offset(max(self.log_end, max(self.records, default=-1) + 1))
        found = [Possible(self.records, self.start, self.synced_end, max(end, self.synced_end))]
        if self.other is not None:
            records, start, synced = self.other
            found.append(Possible(records, start, synced, max(end, start)))
        # A reader may have seen the log start: it never goes back, not even in a crash.
        shown = 0 if self.what.startswith("truncate") else self.log.log_start_offset
        return [possible for possible in found if possible.start >= shown]

    # ---------------------------------------------------------------- steps

    def append(self) -> None:
        pairs = [
            (self.random.choice(KEYS), self.random.choice([None, b"v" * self.random.randrange(90)]))
            for _ in range(self.random.randrange(1, 4))
        ]
        times = [self.now_ms - self.random.randrange(3000) for _ in pairs]
        producer = self.random.choice([-1, 7, 8])
        sequence = self.sequences.get(producer, 0) if producer >= 0 else -1
        batch = batch_of(
            pairs,
            timestamps=times,
            producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1,
            base_sequence=sequence,
        )
        first = self.log.log_end_offset
        # What is written may be found from here on, whether or not the append returns.
        sent = enumerate(zip(times, pairs, strict=True))
        self.records.update({first + at: (time, *pair) for at, (time, pair) in sent})
        appended = self.log.appender.append_as_leader(valid(batch), now_ms=self.now_ms)
        assert isinstance(appended, Appended)
        assert not appended.duplicate
        assert (appended.base_offset, appended.next_offset) == (first, first + len(pairs))
        if producer >= 0:
            self.sequences[producer] = sequence + len(pairs)
            self.sent.setdefault(producer, []).append((read_header(batch), first))

    def append_in_transaction(self) -> None:
        """A batch of a producer that has a transaction open, or begins one."""
        producer, first = self.random.choice(TRANSACTIONAL), self.log.log_end_offset
        pairs = [(self.random.choice(KEYS), b"t") for _ in range(self.random.randrange(1, 3))]
        times = [self.now_ms for _ in pairs]
        batch = batch_of(
            pairs,
            timestamps=times,
            producer_id=producer,
            producer_epoch=0,
            is_transactional=True,
        )
        sent = enumerate(zip(times, pairs, strict=True))
        self.records.update({first + at: (time, *pair) for at, (time, pair) in sent})
        self.transactions.send(producer, range(first, first + len(pairs)))
        appended = self.log.appender.append_as_leader(valid(batch), now_ms=self.now_ms)
        assert appended == Appended(first, Offset(first + len(pairs)))

    def end_transaction(self) -> None:
        """A marker, also for a producer that has nothing open."""
        producer, first = self.random.choice(TRANSACTIONAL), self.log.log_end_offset
        is_commit = self.random.random() < 0.4
        kind = ControlType.COMMIT if is_commit else ControlType.ABORT
        record = write_transaction_marker(TransactionMarker(type=kind, coordinator_epoch=0))
        self.records[first] = (self.now_ms, *record)
        self.transactions.end(producer, first, is_commit=is_commit)
        appended = self.log.appender.append_marker(
            ProducerId(producer),
            Epoch(0),
            is_commit=is_commit,
            coordinator_epoch=Epoch(0),
            now_ms=self.now_ms,
        )
        assert appended == Appended(first, Offset(first + 1))

    def sync(self) -> None:
        end = self.log.sync()
        self.log.advance_high_watermark(end)
        self.synced_end = end

    def roll(self) -> None:
        self.log.roll(self.now_ms)

    def checkpoint(self) -> None:
        work = self.log.checkpoint(grown_bytes_min=1)
        if work is not None:
            self.background(work)
        if self.random.random() < 0.5:
            # Otherwise a roll, a swap or a truncation may come first.
            self.background.run_all()

    def swap(self) -> None:
        """A whole cleaning pass with nothing in between."""
        self.plan_pass()
        self.commit_pass()

    def plan_pass(self) -> None:
        """Write cleaned segments; a step before the commit may make them unfit."""
        view = self.log.cleaning_view()
        ready = [each for each in view.segments if each.row.end_offset <= view.high_watermark]
        if not ready or self.planned is not None:
            return
        first = self.random.randrange(len(ready))
        sources = ready[first : first + self.random.randrange(1, 4)]
        aborted = self.transactions.aborted(view.high_watermark)
        kept = self.transactions.undecided(view.high_watermark) | self.transactions.markers
        batches, dropped = recopied(
            sources,
            lambda each: (
                each.offset in kept or (each.offset not in aborted and self.random.random() < 0.6)
            ),
            view.producer_last_offsets,
        )
        cut = self.random.randrange(len(batches) + 1)
        has_keys = self.random.random() < 0.7
        cleaned = write_cleaned(self.log, sources, batches, cut=cut, has_keys=has_keys)
        rows = [each.row for each in sources]
        self.planned = PlannedPass(rows, cleaned, dropped, view.generation, self.changes)

    def commit_pass(self) -> None:
        """Swap the planned pass in, unless the log has changed under it: then it must be refused."""
        planned, self.planned = self.planned, None
        if planned is None:
            return
        if planned.changes == self.changes and planned.has_its_sources(self.log):
            after = {at: each for at, each in self.records.items() if at not in planned.dropped}
            self.other = (after, self.start, self.synced_end)
            clean_offset = self.random.choice([None, planned.sources[-1].end_offset])
            self._took(planned.dropped)
            planned.swap(self.log, self._sound(clean_offset, after))
            self.records, self.other = after, None
        else:
            with contextlib.suppress(SwapRefused):
                planned.swap(self.log, None)
            planned.discard(self.home)

    def _took(self, dropped: set[int]) -> None:
        """Learn whose records a pass has taken."""
        self.decided_to = max(self.decided_to, self.transactions.marker_of_any(dropped) + 1)

    def _sound(self, clean_offset: Offset | None, records: Content) -> Offset | None:
        """The clean offset, if no aborted and no undecided record stays below it."""
        end = self.log.high_watermark
        not_clean = self.transactions.aborted(end) | self.transactions.undecided(end)
        least = min((at for at in records if at in not_clean), default=LONG_MAX)
        return clean_offset if clean_offset is None or clean_offset <= least else None

    def commit_clean_offset(self) -> None:
        """A pass that has found nothing to rewrite."""
        view = self.log.cleaning_view()
        ends = [each.row.end_offset for each in view.segments]
        clean_offset = max((end for end in ends if end <= view.high_watermark), default=Offset(-1))
        if clean_offset > view.clean_offset and self._sound(clean_offset, self.records):
            self.log.cleaning.commit_clean_offset(clean_offset, generation=view.generation)
            assert self.log.clean_offset == clean_offset

    def begin_keys(self) -> None:
        """Write a segment's key sidecar without its trailer; other events may follow before that."""
        segments = self.log.cleaning_view().segments
        segment = self.random.choice(segments) if segments else None
        if segment is None or self.indexing is not None or check_sidecar(segment, self.hash_key):
            return
        data = segment.read_at(0, segment.row.size)
        writer = segment.new_key_sidecar(self.hash_key)
        for block in blocks_of(data, base_offset=segment.row.base_offset, hash_key=self.hash_key):
            writer.append(block)
        self.indexing = writer, data

    def finish_keys(self) -> None:
        """Give a key sidecar its trailer and its name, even if its segment is gone."""
        self.begin_keys()
        indexing, self.indexing = self.indexing, None
        if indexing is not None:
            writer, data = indexing
            writer.finish(len(data), totals_of(data))

    def drop_keys(self) -> None:
        """Keep no sidecar of a segment, as with log.cleaner.key.sidecar.enable=false."""
        segments = self.log.cleaning_view().segments
        if segments:
            self.random.choice(segments).drop_key_sidecar()

    def change_policy(self) -> None:
        """Stop or begin to compact: no pass that was planned before may drop anything."""
        others = [each for each in POLICIES if each != self.log.config.cleanup_policy]
        policy = self.random.choice(others)
        self.home.config = dataclasses.replace(self.home.config, cleanup_policy=policy)
        self.log.update_config(self.home.config)
        self.changes += 1

    def retain(self) -> None:
        """Keep only so many bytes, where the policy says that old records are deleted."""
        self.log.update_config(
            dataclasses.replace(
                self.home.config,
                retention_bytes=self.random.randrange(self.log.size_bytes + 1),
                retention_ms=self.random.choice([-1, 20_000]),
            )
        )
        if not self.log.retention_is_due(self.now_ms):
            return
        sealed = self.log.segments[:-1]
        due = decide_retention(
            self.log.segments,
            self.log.config,
            now_ms=self.now_ms,
            log_start_offset=Offset(self.start),
            high_watermark=self.log.high_watermark,
        )
        start = max([self.start, *(each.end_offset for each in sealed[: len(due.reasons)])])
        self._advance_start(start, lambda: self.log.retain(self.now_ms))

    def delete_records(self) -> None:
        if self.random.random() < 0.5:
            # As with flush.on.acks.all=false, where readers see what is not synced.
            self.log.advance_high_watermark(self.log.log_end_offset)
        bound = self.log.high_watermark
        start = self.random.choice([bound, self.random.randrange(self.start, bound + 1)])
        self._advance_start(start, lambda: self.log.delete_records(Offset(start)))

    def _advance_start(self, start: int, advance: Callable[[], object]) -> None:
        self.other = (self.records, start, max(self.synced_end, start))
        advance()
        assert self.log.log_start_offset == start
        self.records = {at: each for at, each in self.records.items() if at >= start}
        self.start, self.synced_end, self.other = start, max(self.synced_end, start), None

    def truncate(self) -> None:
        end = self.log.log_end_offset
        offset = self.random.randrange(max(self.start, self.decided_to, end - 12), end + 1)
        cut = max(self._batch_across(offset), self.start)
        kept = {at: each for at, each in self.records.items() if at < cut}
        self.other = (kept, self.start, min(self.synced_end, cut))
        self.log.truncate_to(Offset(offset))
        self.changes += offset < end
        self._truncated(kept, self.start, is_cut=offset < end)

    def truncate_fully(self) -> None:
        offset = self.log.log_end_offset + self.random.randrange(5)
        self.other = ({}, offset, offset)
        self.log.truncate_fully_and_start_at(Offset(offset))
        self.changes += 1
        self._truncated({}, offset)

    def _truncated(self, kept: Content, start: int, *, is_cut: bool = True) -> None:
        self.records, self.start, self.other = kept, start, None
        end = self.log.log_end_offset
        if is_cut:
            # A log that is cut to nothing starts over.
            self.transactions.cut(end if start < end else 0)
        self.synced_end = min(self.synced_end, self.log.log_end_offset)
        self.synced_end = max(self.synced_end, start)
        self.sync()
        self._forget_sent(self.log.log_end_offset)

    def restart(self) -> None:
        self.background.run_all()
        planned, self.planned = self.planned, None
        if planned is not None:
            planned.discard(self.home)
        indexing, self.indexing = self.indexing, None
        if indexing is not None:
            indexing[0].discard()
        self.log.close()
        self.synced_end = self.log.log_end_offset
        self.disk = self.home.fs = self.disk.after_crash(Loss.EVERYTHING, self.crash_random)
        self.disk.on_operation = self.observe
        self._reopen(is_clean=True)
        assert read_content(self.log) == self.records
        self.transactions.check(self.log, self.records)

    def crash_and_go_on(self) -> None:
        """Live on with a state that a power cut has left, as a broker does."""
        self.disk = self.home.fs = self.disk.after_crash(Loss.TORN, self.crash_random)
        self._go_on()

    def end_process_and_go_on(self) -> None:
        """kill -9: the machine and its page cache live on, what waited in the background is gone."""
        self.disk.on_operation = None
        self.disk.forget_cached("/data")  # as `LogDirectory` does when a sync has failed
        self._go_on()

    def _go_on(self) -> None:
        self.background.waiting.clear()
        self.planned = self.indexing = None
        self._reopen(is_clean=False)
        self.records = check_content(self.log, self.possible())
        self.start, self.other = self.log.log_start_offset, None
        self.synced_end = end = self.log.log_end_offset
        # A log that was cut to nothing starts over.
        is_emptied = self.what.startswith("truncate") and self.start == end
        self.transactions.cut(0 if is_emptied else end)
        self.disk.on_operation = self.observe
        self._forget_sent(end)

    def _forget_sent(self, end: int) -> None:
        """Continue after each producer's last batch below `end`, if the log still knows it.

        Cleaning keeps a producer's last batch only, so a truncation may leave none of them.
        """
        for producer, sent in self.sent.items():
            self.sent[producer] = [
                (header, at)
                for header, at in sent
                if at < end and isinstance(self.log.producers.check_append(header), Duplicate)
            ]
            state = self.log.producers.get(ProducerId(producer))
            batches = state.batches if state else ()
            self.sequences[producer] = batches[-1].last_sequence + 1 if batches else 0

    def _reopen(self, *, is_clean: bool) -> None:
        self.epoch += 1
        self.log = self.home.open(epoch=self.epoch, is_clean=is_clean, now_ms=self.now_ms)

    def _batch_across(self, offset: int) -> int:
        """Where the batch begins that has offsets on both sides of `offset`; else `offset`."""
        for segment in self.log.segments:
            data = segment.files.open().read_at(0, segment.size)
            position = 0
            while position < len(data):
                header = read_header(data, position)
                if header.base_offset < offset <= header.last_offset:
                    return header.base_offset
                position += header.size_bytes
        return offset
