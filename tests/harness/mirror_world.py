"""A source and its mirror in a simulation: logs on disks in memory, one clock, a seed for every choice.

The source is written, cleaned, and led by another broker after an unclean election; the mirror fetches
with random bounds, loses answers, crashes, is paused, and is cleaned for itself. Answers are built from
the source's log as its broker would, and go through the same judgement, table and writer as in a
broker. With resyncs, an operator asks for one now and then when the mirror has failed, and answers
arrive late.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any, ParamSpec, TypeVar

from protocol.records.record_batch import Record
from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Epoch, Offset
from server.client.access import Access
from server.replication.copying import SourceCopier
from server.replication.fetch_pace import FetchPace
from server.replication.findings import SourceAnswer, SourceTopic, Verdict, judge
from server.replication.mirror import Mirror
from server.replication.requests import FetchBounds, Fetched
from server.replication.resync import refusal_of_resync
from server.replication.slot_content import resync_of, safe_ms_of
from server.replication.state_table import FINAL, Event, Guard, MirrorState
from server.replication.target import Target
from server.replication.writer import MirrorWriter
from server.runtime.turns import Turns
from storage.files.paths import copy_directory
from storage.log.appender import Appended
from storage.log.log import PartitionLog
from storage.log.opening import plan_log
from storage.segment.reader import Isolation
from storage.state.leader_epochs import EpochEnd
from tests.harness.compacted_log import CONFIG, CompactedLog, opening
from tests.harness.log_transactions import committed_offsets
from tests.harness.memory_fs import Loss
from tests.harness.transactional_producer import TransactionalProducer

P = ParamSpec("P")
R = TypeVar("R")

TOPIC_ID = uuid.UUID(int=7)
KEYS = [b"k%d" % number for number in range(8)]
RETENTION_MS = 40_000
"""Of tombstones at the source."""
STEP_MS = (1, 20, 20, 200)
"""The time between two steps."""
SMALL = replace(CONFIG, delete_retention_ms=RETENTION_MS, segment_bytes=600)
TOPIC = SourceTopic(
    topic_id=TOPIC_ID,
    partitions_count=1,
    compacts=True,
    deletes=False,
    delete_retention_ms=RETENTION_MS,
)
NO_BOUNDS = FetchBounds(wait_ms=0, min_bytes=0, max_bytes=0, partition_max_bytes=0)
NO_LIMIT = FetchPace(None, clock=lambda: 0.0)
"""The world builds the answers, so nothing is asked with these."""


class AtOnce:
    """Runs the work of an executor in the calling thread."""

    async def run(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        return work(*args, **kwargs)


class Commit:
    """A group commit that syncs when it is asked to wait, or by chance."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def appended(self, log: PartitionLog) -> None:
        if self._random.random() < 0.7:
            log.advance_high_watermark(log.sync())

    async def durable(self, log: PartitionLog, offset: int) -> bool:
        log.advance_high_watermark(log.sync())
        return True

    async def rest(self, log: PartitionLog) -> None:
        await self.durable(log, log.log_end_offset)

    def abandon(self, log: PartitionLog) -> None:
        """Nobody waits."""


class StartCounter:
    """The mirror's log directory: its start counter, and the copies of resyncs."""

    directory_id = "AAAAAAAAAAAAAAAAAAAAAg"

    def __init__(self, of: CompactedLog) -> None:
        self.count = 0
        self._of = of

    def raise_epoch(self, epoch: Epoch) -> None:
        self.count = max(self.count, epoch + 1)

    def begin_copy(self, log: PartitionLog, start_offset: Offset) -> PartitionLog:
        identity = replace(log.identity, directory=copy_directory(log.directory))
        self._of.fs.remove_tree(identity.directory)
        made = opening(now_ms=self._of.now_ms, leader_epoch=log.leader_epoch)
        copy = plan_log(self._of.fs, identity, log.config, made, start_offset=start_offset)
        copy.new_files.make()
        _ = copy.epochs, copy.producers
        return copy

    def drop_copy(self, copy: PartitionLog) -> None:
        if not copy.is_retired:
            copy.retire()
        self._of.fs.remove_tree(copy.directory)


class MirrorWorld:
    """One source and one mirror."""

    def __init__(
        self, seed: int, *, resyncs: bool = False, trims: bool = False, fills: bool = False
    ) -> None:
        """
        Args:
            trims: whether records are deleted at the source, also before they were copied.
            fills: whether the mirror's disk is full now and then.
        """
        self.random = Random(seed)
        self.trims = trims
        self.disk_filler = Random(seed) if fills else None
        self.waits_for_room = 0
        """How often the mirror has waited because its disk was full."""
        self.topic = replace(TOPIC, deletes=trims)
        self.operator = Random(seed) if resyncs else None
        """Decides about resyncs; None if there are none."""
        self.late: tuple[Target, Fetched] | None = None
        """An answer that has not arrived yet."""
        self._before = (0, 0)
        self.source = CompactedLog(SMALL)
        self.copy = CompactedLog(replace(SMALL, delete_retention_ms=0))
        self.lags = seed // 4 % 2 == 1
        """Whether time passes so fast that the source removes tombstones before the mirror has them."""
        self.is_internal = seed // 2 % 2 == 1
        """Whether the source's answers are those of its listener for brokers."""
        self.compacts_copy = self.random.random() < 0.5
        self.counter = StartCounter(self.copy)
        self.history: dict[int, Record] = {}
        """Every record that the source ever had at an offset, as it is now: a diverging one was
        replaced."""
        self.slot: str | None = None
        """The metadata of the slot at the source."""
        self._begin()
        self.mirror = self._opened()
        self.transactions: dict[int, TransactionalProducer] = {}
        self.elections = 0
        self.stops: set[Guard] = set()
        """Why the mirror has failed now and then."""
        self.known_epoch: Epoch | None = None
        """The source's leader epoch as the link knows it; None if it knows the true one."""

    def _begin(self) -> None:
        """Fill the logs before the mirror follows."""

    @property
    def now_ms(self) -> int:
        return self.source.now_ms

    def _opened(self) -> Mirror:
        log = self.copy.log
        safe_ms = safe_ms_of(self.slot, log.copy_id)
        mirror = Mirror(log, now_ms=lambda: self.now_ms, safe_ms=safe_ms)
        if (before := resync_of(self.slot, log.copy_id)) is not None:
            mirror.begin_resync(before.cause, puts_aside=before.puts_aside)
        mirror.slot_committed(0, mirror.slot_content, mirror.target)
        commit: Any = Commit(self.random)
        disk: Any = AtOnce()
        directory: Any = self.counter

        async def make_files(_: PartitionLog) -> None:
            """They are made."""

        self.writer = MirrorWriter(
            commit,
            make_files,
            [directory],
            files=self.copy.fs,
            disk=disk,
            turns=Turns(),
            now_ms=lambda: self.now_ms,
        )
        self.copier = SourceCopier("", Access(), lambda: (), self, self.writer, NO_BOUNDS, NO_LIMIT)
        return mirror

    @property
    def resyncs_started(self) -> int:
        return self._before[0] + self.mirror.resyncs_started

    @property
    def resyncs_completed(self) -> int:
        return self._before[1] + self.mirror.resyncs_completed

    # ---------------------------------------------------------------- steps

    async def run(self, steps: int) -> None:
        """Take random steps; after each the mirror has only what the source had."""
        for _ in range(steps):
            await self._step()
            self._check()

    async def settle(self) -> None:
        """Let the mirror copy until it has everything, or only an operator can decide."""
        resumed = 0
        if self.trims:
            # Of an open transaction, the mirror may know only the records that were not deleted.
            self._end_transactions()
        for _ in range(300):
            if self.mirror.state is MirrorState.FAILED:
                if resumed == (3 if self.operator is None else 30):
                    return
                resumed += 1
                self._write()
                if self.operator is not None:
                    self._resync(self.operator)
                await self._tend_by_itself()
            if self.mirror.state not in (MirrorState.CHECKING, MirrorState.COPYING):
                self.mirror.happened(Event.RESUME)
            await self._fetch(is_lost=False)
            self.copy.log.advance_high_watermark(self.copy.log.sync())
            self._check()
            theirs, ours = self.source.log, self.copy.log
            is_level = (ours.log_start_offset, ours.log_end_offset) == (
                theirs.log_start_offset,
                theirs.high_watermark,
            )
            if is_level and self.mirror.state is MirrorState.COPYING:
                return
        raise AssertionError(f"it does not end: {self.mirror.facts()}")

    async def _step(self) -> None:
        self._pass_time(self.random.choice(STEP_MS) * (10 if self.lags else 1))
        choice = self.random.random()
        if choice < 0.40:
            self._write()
        elif choice < 0.70:
            await self._fetch(is_lost=self.random.random() < 0.1)
        elif choice < 0.78:
            self.source.clean()
        elif choice < 0.84:
            self._clean_copy()
        elif choice < 0.88:
            self._restart_copy()
        elif choice < 0.89:
            self._pass_time(RETENTION_MS // 8)
        elif choice < 0.93:
            self.mirror.happened(Event.PAUSE)
        elif choice < 0.99:
            self.mirror.happened(Event.RESUME)
        else:
            self._elect()
        await self._tend_by_itself()
        if self.trims and self.random.random() < 0.1:
            self._trim()
        if self.operator is not None:
            await self._operate(self.operator)

    def _trim(self) -> None:
        """Delete records at the source, most often all of them."""
        log = self.source.log
        start, end = log.log_start_offset, log.high_watermark
        offset = self.random.choice((end, end, self.random.randint(start, end)))
        assert not isinstance(log.delete_records(Offset(offset)), ErrorCode)

    async def _operate(self, operator: Random) -> None:
        """Ask for a resync if it has failed; let an answer arrive that was late."""
        if operator.random() < 0.3 and self.mirror.state is MirrorState.FAILED:
            self._resync(operator)
        if self.late is not None and operator.random() < 0.3:
            (target, fetched), self.late = self.late, None
            if target is not self.mirror.target:
                await self.copier.take(self.mirror, target, fetched, self._source_epoch_end)

    def _resync(self, operator: Random) -> None:
        mirror = self.mirror
        assert mirror.cause is not None
        needs = not refusal_of_resync(
            mirror.state, mirror.cause, puts_aside=False, is_offline=False
        )
        puts_aside = not needs or operator.random() < 0.2
        mirror.begin_resync(mirror.cause, puts_aside=puts_aside)

    async def _tend_by_itself(self) -> None:
        """Do what the link does without an operator."""

    def _pass_time(self, by_ms: int) -> None:
        self.source.now_ms += by_ms
        self.copy.now_ms = self.source.now_ms
        self.mirror.make_due()

    def _write(self) -> None:
        before = self.source.log.log_end_offset
        choice = self.random.random()
        if choice < 0.7:
            self._append()
        elif choice < 0.85:
            producer_id = self.elections * 3 + self.random.randrange(3)
            producer = self.transactions.setdefault(
                producer_id, TransactionalProducer(self.source, producer_id)
            )
            producer.send((self.random.choice(KEYS), self._value()))
        elif self.transactions:
            producer_id = self.random.choice(sorted(self.transactions))
            producer = self.transactions[producer_id]
            self.random.choice((producer.commit, producer.abort))()
        self._remember(before)

    def _append(self) -> None:
        before, count = self.source.log.log_end_offset, self.random.randrange(1, 4)
        self.source.append(*[(self.random.choice(KEYS), self._value()) for _ in range(count)])
        self._remember(before)

    def _end_transactions(self) -> None:
        before = self.source.log.log_end_offset
        for each in self.source.log.producers.open_transactions():
            marker = self.source.log.appender.append_marker(
                each.producer_id,
                each.producer_epoch,
                is_commit=False,
                coordinator_epoch=Epoch(0),
                now_ms=self.now_ms,
            )
            assert isinstance(marker, Appended), marker
        self.source.make_durable()
        self._remember(before)

    def _value(self) -> bytes | None:
        return None if self.random.random() < 0.3 else b"%d" % self.random.randrange(1 << 20)

    def _remember(self, start: int) -> None:
        for record in self.source.records(start):
            self.history[record.offset] = record

    def _clean_copy(self) -> None:
        if self.compacts_copy:
            self.copy.clean()

    def _restart_copy(self) -> None:
        self.copy.reopen(
            is_clean=self.random.random() < 0.3,
            loss=self.random.choice((Loss.EVERYTHING, Loss.NOTHING)),
        )
        self.counter.count += 1
        self.late = None
        self._before = (self.resyncs_started, self.resyncs_completed)
        assert self.counter.count > self.copy.log.epochs.latest, (
            "a start would lead with a known epoch"
        )
        self.mirror = self._opened()

    def _elect(self) -> None:
        """Let a replica of the source lead that lacks its last records.

        It has not cleaned away anything because of a record that it lacks.
        """
        log = self.source.log
        offset = max(log.cut_offset_min, log.log_end_offset - self.random.randrange(6))
        if self.trims and offset <= log.log_start_offset:
            return  # An emptied log forgets its open transactions: nothing would end them at the mirror.
        log.truncate_to(Offset(offset))
        self.transactions.clear()
        self.elections += 1
        for each in [each for each in self.history if each >= log.log_end_offset]:
            del self.history[each]
        log.lead_above(log.leader_epoch)
        if self.random.random() < 0.7:
            self._write()

    # ---------------------------------------------------------------- fetching

    async def _fetch(self, *, is_lost: bool) -> None:
        """Ask once. Between the answer and its arrival the source may have changed."""
        mirror = self.mirror
        await self._tend(mirror)
        target = mirror.target
        if not mirror.is_asking or target is None:
            return
        fetched = self._lost() if is_lost else self._answer(mirror, target)
        if self.operator is not None and self.late is None and self.operator.random() < 0.2:
            self.late = target, fetched
        if self.random.random() < 0.2:
            self._write()
        self._fill_disk()
        await self.copier.take(mirror, target, fetched, self._source_epoch_end)
        self.copy.fs.faults.heal()
        self.waits_for_room += "waits for room" in mirror.reason
        if self.random.random() < 0.5:
            self._commit_slot(mirror)

    def _fill_disk(self) -> None:
        if self.disk_filler is not None and self.disk_filler.random() < 0.3:
            self.copy.fs.faults.space = self.disk_filler.randrange(600)

    async def _tend(self, mirror: Mirror) -> None:
        """Do what a link does each second."""
        await self.writer.drop_copy(mirror)
        resync = mirror.resync
        if mirror.state is MirrorState.RESYNC and resync is not None and resync.target is None:
            await self.writer.begin_copy(mirror)
        if mirror.slot is None:
            self._commit_slot(mirror)

    def _commit_slot(self, mirror: Mirror) -> None:
        content = mirror.slot_content
        self.slot = content.metadata()
        mirror.slot_committed(self.now_ms, content, mirror.target)

    def topic_id(self, mirror: Mirror) -> uuid.UUID:
        """Returns the id of the source's topic."""
        return TOPIC_ID

    def may_have_gaps(self) -> bool:
        """Returns whether gaps are legal."""
        return True

    def compacts(self, mirror: Mirror) -> bool:
        """Returns whether the source's topic is compacted."""
        return self.topic.compacts

    def judge(self, mirror: Mirror, answer: SourceAnswer) -> Verdict:
        """Returns what an answer means, as a link does."""
        target = mirror.target
        assert target is not None
        mirror.noted(answer, target)
        missed = "" if target.is_empty else target.tombstones.missed(self.now_ms, RETENTION_MS)
        verdict = judge(
            answer,
            target.place,
            topic=self.topic,
            mirrored_id=TOPIC_ID,
            sparse_level=1,
            missed_tombstones=missed,
            **self._rules(target),
        )
        if verdict.guard in FINAL:
            self.stops.add(verdict.guard)
        return verdict

    def _rules(self, target: Target) -> dict[str, bool]:
        """Returns further arguments of the judgement."""
        return {}

    def name_of(self, mirror: Mirror) -> uuid.UUID | None:
        """Returns the source's name for the mirror's log."""
        return None

    def may_have_own(self, mirror: Mirror) -> bool:
        """Returns whether the mirror has led."""
        return False

    def leader_epoch(self, mirror: Mirror) -> Epoch:
        """Returns the source's leader epoch as the link knows it."""
        return self.source.log.leader_epoch if self.known_epoch is None else self.known_epoch

    async def _source_epoch_end(self, epoch: Epoch) -> EpochEnd:
        return self.source.log.reader.end_offset_for_epoch(epoch)

    def _lost(self) -> Fetched:
        return Fetched(answer=SourceAnswer(error="no answer"), records=b"", is_complete=False)

    def _answer(self, mirror: Mirror, target: Target) -> Fetched:
        """Returns what the source's broker answers."""
        log, place = self.source.log, target.place
        has_room = self.random.random() < 0.9
        found = log.reader.read(
            place.end,
            max_bytes=self.random.choice((50, 200, 5_000)),
            whole_first_batch=True,
            isolation=Isolation.READ_UNCOMMITTED,
            last_fetched_epoch=place.last_epoch if mirror.asks_epoch else Epoch(-1),
            with_empty_batches=self.is_internal,
        )
        if isinstance(found, ErrorCode):
            # The copier asks where the log starts and ends.
            answer = SourceAnswer(
                error_code=found, start=log.log_start_offset, high_watermark=log.high_watermark
            )
            return Fetched(answer=answer, records=b"", is_complete=True)
        records = b"".join(region.read_bytes() for region in found.regions)
        for region in found.regions:
            region.release()
        answer = SourceAnswer(
            start=found.log_start_offset,
            high_watermark=found.high_watermark,
            diverging=found.diverging_epoch,
        )
        if not has_room:
            # Another partition has filled the answer.
            return Fetched(answer=answer, records=b"", is_complete=False)
        fetched = Fetched(answer=answer, records=records, is_complete=True, is_alone=True)
        if mirror.idle is None or replace(fetched, is_alone=False) != mirror.idle:
            return fetched
        # The copier asks alone for what seems to have a gap.
        return fetched if fetched.has_gap_from(place.end) else mirror.idle

    # ---------------------------------------------------------------- what must hold

    def _check(self) -> None:
        log = self.copy.log
        assert log.leader_epoch > log.epochs.latest, "clients would see epochs from the future"
        assert self.counter.count >= log.epochs.latest

    def diverges(self) -> bool:
        """Returns whether a record of the mirror is not the one that its source had at the offset."""
        return any(
            self.history.get(record.offset) != record
            for record in self.copy.records()
            if record.key is not None
        )

    def last_values(self, of: CompactedLog) -> dict[bytes, bytes]:
        """Returns the last committed value of each key."""
        committed = set(committed_offsets(of.log))
        found: dict[bytes, bytes] = {}
        for record in of.records():
            if record.key is None or record.offset not in committed:
                continue
            if record.value is None:
                found.pop(record.key, None)
            else:
                found[record.key] = record.value
        return found

    def refuses_a_producer(self) -> bool:
        """Returns whether the mirror, if it were promoted, would refuse a producer's next batch.

        It may refuse one of which it has only a marker: the sequence could be that of a new epoch.
        """
        producers = self.copy.log.producers
        headers = [each.next_header() for each in self.transactions.values()]
        states = {each.producer_id: producers.get(each.producer_id) for each in headers}
        return any(
            producers.check_append(each, None) is not ErrorCode.NONE
            for each in headers
            if (state := states[each.producer_id]) is None or state.batches
        )

    def forgets_a_producer(self) -> bool:
        """Returns whether the mirror lacks the last batch of a producer that the source's log has.

        After an unclean election the source may know a batch that its log no longer has.
        """
        there = {(each.producer_id, each.last_offset) for each in self.source.headers()}
        ours = self.copy.log.producers
        for producer_id, state in self.source.log.producers.items():
            last = state.batches[-1:]
            if last and (producer_id, last[0].last_offset) in there:
                known = ours.get(producer_id)
                if known is None or known.batches[-1:] != last:
                    return True
        return False
