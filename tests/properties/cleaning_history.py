"""A log beside all that was ever written to it, and what a consumer may rely on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

from cleaner.pacing.meter import CleaningAborted
from cleaner.pacing.settings import CleanerSettings
from cleaner.passes.clean import PlanOutdated
from protocol.records.control_record import ControlType, TransactionMarker
from protocol.records.record_batch import Record, build_batch, build_control_batch
from protocol.wire.numbers import Offset, ProducerId
from tests.harness.compacted_log import DIRECTORY, CompactedLog, read_bytes
from tests.harness.log_builder import headers_in, records_in, run_of, valid
from tests.harness.memory_fs import Loss, MemoryFileSystem
from tests.properties.cleaning_steps import (
    RETENTION_MS,
    Append,
    ChangePolicy,
    Clean,
    CrashInPass,
    EndTransaction,
    Restart,
    Roll,
    SendAgain,
    Step,
    Truncate,
)

SNAPSHOT = ".snapshot"


class TinyChunks(CleanerSettings):
    """Settings under which every batch is a chunk's end."""

    @property
    def chunk_bytes(self) -> int:
        return 64


class NarrowWindows(TinyChunks):
    """Settings under which every segment is marked, and rewritten, by itself."""

    @property
    def marks_bytes(self) -> int:
        return 1


@dataclass(slots=True)
class Written:
    """What is known of one offset for ever."""

    record: Record
    producer: int
    outcome: ControlType | None
    """COMMIT for what is in no transaction; None as long as its transaction is open."""
    decided_at: int
    """The offset of the marker, or its own."""
    first_cleaned_ms: int | None = None
    """When a pass could have met it first: its delete horizon cannot be earlier."""


@dataclass(slots=True)
class Producer:
    """A producer with a sequence, and its last batch."""

    sequence: int = 0
    last_batch: bytes = b""
    last_batch_at: int = -1


@dataclass(slots=True)
class History:
    """A log beside all that was ever written to it."""

    log: CompactedLog
    written: dict[int, Written] = field(default_factory=dict)
    producers: dict[int, Producer] = field(default_factory=dict)
    start_offset: int = 0
    """Below it, records were deleted."""
    cut_at: int = -1
    """Where the log was truncated last. The output of a pass may end before it, and
    no reader learns where, until something is appended."""

    # ---------------------------------------------------------------- steps

    def take(self, step: Step) -> None:
        match step:
            case Append():
                self._append(step)
            case EndTransaction(producer=producer, kind=kind):
                self._end_transaction(producer, kind)
            case SendAgain(producer=producer):
                self._send_again(producer)
            case Roll():
                self.log.roll()
            case Clean():
                self._clean(step)
            case CrashInPass():
                self._crash_in_pass(step)
            case Restart():
                self._restart(step)
            case Truncate(offsets_count=count):
                self._truncate(max(self.log.log.log_end_offset - count, 0))
            case ChangePolicy():
                for policy in (("delete",), ("compact",)):
                    config = replace(self.log.log.config, cleanup_policy=policy, retention_ms=-1)
                    self.log.log.update_config(config)

    def _restart(self, step: Restart) -> None:
        for name in () if step.has_sound_snapshots else self.log.files():
            if name.endswith(SNAPSHOT):
                self.log.fs.write_bytes(f"{DIRECTORY}/{name}", b"damaged")
        self.log.reopen(is_clean=step.is_clean, loss=Loss.NOTHING)

    def _append(self, step: Append) -> None:
        producer = self.producers.setdefault(step.producer, Producer())
        base = self.log.log.log_end_offset
        records = [
            Record(offset=number, timestamp=1000 + number, key=key, value=value)
            for number, (key, value) in enumerate(step.pairs)
        ]
        batch = build_batch(
            records,
            codec=step.codec,
            producer_id=step.producer,
            producer_epoch=0 if step.producer >= 0 else -1,
            base_sequence=producer.sequence if step.producer >= 0 else -1,
            is_transactional=step.producer >= 10,
        )
        producer.last_batch, producer.last_batch_at = bytes(batch), base
        producer.sequence += len(records)
        appended = self.log.append_batch(valid(batch))
        assert (appended.base_offset, appended.duplicate) == (base, False)
        for record in records:
            at = base + record.offset
            placed = replace(record, offset=at)
            outcome = ControlType.COMMIT if step.producer < 10 else None
            self.written[at] = Written(placed, step.producer, outcome, at)

    def _end_transaction(self, producer: int, kind: ControlType) -> None:
        marker_at = self.log.log.log_end_offset
        marker = build_control_batch(
            TransactionMarker(type=kind, coordinator_epoch=0),
            offset=marker_at,
            timestamp=1000,
            producer_id=producer,
            producer_epoch=0,
            leader_epoch=self.log.log.leader_epoch,
        )
        self.log.log.appender.append_as_follower(run_of(marker), now_ms=self.log.now_ms)
        self.log.make_durable()
        for each in self.written.values():
            if each.producer == producer and each.outcome is None:
                each.outcome, each.decided_at = kind, marker_at

    def _send_again(self, producer_id: int) -> None:
        producer = self.producers.get(producer_id)
        if producer is not None and producer_id >= 0 and producer.last_batch_at >= 0:
            appended = self.log.append_batch(valid(bytearray(producer.last_batch)))
            assert (appended.base_offset, appended.duplicate) == (producer.last_batch_at, True)

    def _clean(self, step: Clean) -> None:
        self.log.now_ms += step.after_ms
        self.log.settings = replace(self.log.settings, dedupe_buffer_size=24 * step.map_slots)
        self.log.roll()
        self._note_pass()
        looks = 0

        def stop(_seconds: float) -> bool:
            nonlocal looks
            looks += 1
            return step.stopped_after is not None and looks > step.stopped_after

        try:
            self._execute_whole(stop)
        except CleaningAborted:
            assert step.stopped_after is not None

    def _execute_whole(self, stop: Callable[[float], bool]) -> None:
        """Run a pass, and another one for the rest if it meets damage after a swap, as the pool does."""
        try:
            self.log.execute(self.log.plan(), stop=stop)
        except PlanOutdated:
            self._execute_whole(stop)

    def _crash_in_pass(self, step: CrashInPass) -> None:
        self.log.roll()
        self._note_pass()
        left: list[MemoryFileSystem] = []
        operations = 0

        def cut(_action: str, _path: str) -> None:
            nonlocal operations
            operations += 1
            if operations == step.operations:
                left.append(self.log.fs.after_crash(step.loss, Random(step.seed)))

        self.log.fs.on_operation = cut
        self.log.execute(self.log.plan())
        self.log.fs.on_operation = None
        self.log.fs = left[0] if left else self.log.fs
        self.log.reopen(is_clean=False, loss=Loss.NOTHING)

    def _note_pass(self) -> None:
        for each in self.written.values():
            if each.first_cleaned_ms is None:
                each.first_cleaned_ms = self.log.now_ms

    def _truncate(self, offset: int) -> None:
        self.log.log.truncate_to(Offset(offset))
        self.cut_at = end = self.log.log.log_end_offset
        # What a record that goes had superseded is not called back.
        there = {record.offset for record in self._read(0)[0]}
        self.written = {at: each for at, each in self.written.items() if at in there}
        for each in self.written.values():
            if each.decided_at >= end:
                each.outcome = None
        for number, producer in self.producers.items():
            # Cleaning has kept a producer's last batch only; if that goes, so may its sequence.
            state = self.log.log.producers.get(ProducerId(number))
            batches = state.batches if state is not None else ()
            producer.sequence = batches[-1].last_sequence + 1 if batches else 0
            if producer.last_batch_at >= end:
                producer.last_batch_at = -1

    # ---------------------------------------------------------------- what must hold

    def check(self) -> None:
        records, position = self._read(self.log.log.log_start_offset)
        assert self.log.log.log_start_offset == self.start_offset
        self._check_end(position)
        offsets = [record.offset for record in records]
        assert offsets == sorted(set(offsets)), "order"
        for record in records:
            assert record == self.written[record.offset].record, "what stands at an offset"
        self._check_undecided(set(offsets))
        self._check_newest(set(offsets))
        for number in self.producers:
            self._send_again(number)

    def check_every_start_offset(self) -> None:
        whole, _ = self._read(0)
        for offset in range(self.log.log.log_end_offset + 1):
            records, position = self._read(offset)
            self._check_end(position)
            assert records == [record for record in whole if record.offset >= offset]

    def _read(self, position: int) -> tuple[list[Record], int]:
        """The data that a consumer is given from a position on, and where it ends up."""
        start, records = position, list[Record]()
        while data := read_bytes(self.log.log, position):
            headers = headers_in(data)
            control = {header.base_offset for header in headers if header.is_control}
            records += [
                record
                for record in records_in(data)
                if record.offset >= start and record.offset not in control
            ]
            assert headers[-1].next_offset > position
            position = headers[-1].next_offset
        return records, position

    def _check_end(self, position: int) -> None:
        end = self.log.log.log_end_offset
        assert self.log.log.high_watermark == end
        assert position == end or (position < end and end == self.cut_at), "a consumer is stuck"

    def _check_undecided(self, there: set[int]) -> None:
        undecided = {at for at, each in self.written.items() if each.outcome is None}
        assert undecided <= there, "what is not decided yet stays"

    def _check_newest(self, there: set[int]) -> None:
        """The newest committed value of each key is there, or its tombstone has done its time."""
        newest: dict[bytes | None, int] = {}
        for at, each in sorted(self.written.items()):
            if each.outcome is ControlType.COMMIT:
                newest[each.record.key] = at
        for key, at in newest.items():
            if at in there:
                continue
            each = self.written[at]
            assert each.record.value is None, f"the last value of {key!r}, at {at}, is gone"
            assert each.first_cleaned_ms is not None
            assert self.log.now_ms >= each.first_cleaned_ms + RETENTION_MS, "gone too early"
            older = self._older(key, at)
            assert not older & there, f"{key!r} has risen again at {sorted(older & there)}"

    def _older(self, key: bytes | None, at: int) -> set[int]:
        return {
            offset
            for offset, each in self.written.items()
            if offset < at and each.record.key == key and each.outcome is ControlType.COMMIT
        }
