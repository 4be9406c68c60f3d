"""A log of committed offsets, or of transactional ids, with the checkpoints that were made of it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from cleaner.checkpoints.making import CheckpointOrder, MadeCheckpoint, make_checkpoint
from protocol.internal_topics.coordinator_records import CoordinatorRecord, write_key, write_value
from protocol.internal_topics.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    GroupRecord,
)
from protocol.records.batch_header import read_header
from protocol.records.offset_commits import OffsetScan
from protocol.records.record import write_record
from protocol.records.record_batch import Record, build_batch_around
from protocol.wire.numbers import Epoch, Offset, ProducerId
from server.coordination.state_loading import LoadReport, feed_log, load_state
from storage.batches.validate import ValidBatch
from storage.files.files import unlink_if_there
from storage.files.paths import checkpoint_path
from storage.formats.log_config import LogConfig
from storage.log.appender import Appended
from storage.log.opening import open_log
from tests.harness.compacted_log import DIRECTORY, CompactedLog, identity, meter_of, opening
from tests.harness.memory_fs import MemoryFileSystem
from tests.harness.offsets_model import Commit, Event, Marker, Tombstones
from tests.harness.offsets_world import commit, tombstones

PATH = checkpoint_path(DIRECTORY)
INFLATED_BYTES_MAX = 1 << 20
CONFIG = LogConfig(
    cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0, delete_retention_ms=0
)
MEMORY_BYTES = 1 << 20

State = tuple[Any, ...]


def new_scan() -> OffsetScan:
    return OffsetScan(decompressed_bytes_max=INFLATED_BYTES_MAX)


def state_of(scan: OffsetScan) -> State:
    """Returns what a scan has found, without empty dictionaries."""
    offsets = {
        (group, topic, partition): each
        for group, topics in scan.offsets.items()
        for topic, partitions in topics.items()
        for partition, each in partitions.items()
    }
    pending = {
        (producer_id, group, topic, partition): each
        for producer_id, groups in scan.pending.items()
        for group, topics in groups.items()
        for topic, partitions in topics.items()
        for partition, each in partitions.items()
    }
    return offsets, pending, list(scan.others.items())


def group_record(group: str, generation: int) -> GroupRecord:
    value = GroupMetadataValue(
        protocol_type="consumer", generation=generation, protocol=None, leader=None, members=()
    )
    return GroupRecord(GroupMetadataKey(group=group), value)


@dataclass(frozen=True, slots=True)
class Other:
    """A record of a group, or its tombstone."""

    group: str
    generation: int | None


@dataclass(frozen=True, slots=True)
class Clean:
    """A cleaning pass, some time after the last one."""

    after_ms: int


@dataclass(frozen=True, slots=True)
class Cut:
    """The log loses this many records at its end."""

    records: int


@dataclass(frozen=True, slots=True)
class DeleteRecords:
    """The log start moves this far."""

    records: int


Change = Event | Other | Clean | Cut | DeleteRecords
"""What may happen to a log in a random history."""


class CheckpointedLog(CompactedLog):
    """A partition of `__consumer_offsets` to which events are appended, each as one batch."""

    def __init__(self, config: LogConfig = CONFIG) -> None:
        super().__init__(config)
        self._numbers = itertools.count(1)

    def change(self, step: Change) -> None:
        """Let this happen to the log, if it has records enough."""
        match step:
            case Commit() | Tombstones() | Marker():
                self.play(step)
            case Other():
                record = group_record(step.group, step.generation or 0)
                self.add(record if step.generation is not None else type(record)(record.key, None))
            case Clean():
                self.now_ms += step.after_ms
                self.roll()
                if self.assess(requested=True).reason is not None:
                    self.execute(self.plan())
            case Cut():
                end = self.log.log_end_offset - step.records
                if end >= self.log.log_start_offset:
                    self.cut(end)
            case DeleteRecords():
                start = self.log.log_start_offset + step.records
                if start <= self.log.high_watermark:
                    self.log.delete_records(Offset(start))

    def play(self, event: Event) -> None:
        """Append an event. Its offsets are committed by no other one."""
        match event:
            case Marker():
                self.end(event.producer_id, is_commit=event.is_commit)
            case Tombstones():
                self.add(*tombstones(event.group, [("t", each) for each in event.partitions]))
            case Commit():
                number = next(self._numbers)
                records = [commit(each, number, group=event.group) for each in event.partitions]
                self.add(*records, producer_id=event.producer_id)

    def add(self, *records: CoordinatorRecord, producer_id: int | None = None) -> int:
        """Append records in one batch. Returns the offset after them."""
        pairs = [
            (write_key(each.key), None if each.value is None else write_value(each.value))
            for each in records
        ]
        return self.add_pairs(pairs, producer_id=producer_id)

    def add_pairs(
        self,
        pairs: Iterable[tuple[bytes | None, bytes | None]],
        *,
        producer_id: int | None = None,
        producer_epoch: int = 0,
    ) -> int:
        data, count = bytearray(), 0
        for key, value in pairs:
            record = Record(offset=count, timestamp=self.now_ms, key=key, value=value)
            write_record(data, record, base_offset=0, base_timestamp=self.now_ms)
            count += 1
        batch = memoryview(
            build_batch_around(
                data,
                record_count=count,
                timestamp=self.now_ms,
                producer_id=-1 if producer_id is None else producer_id,
                producer_epoch=-1 if producer_id is None else producer_epoch,
                is_transactional=producer_id is not None,
            )
        )
        return self.append_batch(ValidBatch(read_header(batch), batch)).next_offset

    def end(self, producer_id: int, *, is_commit: bool, epoch: int = 0) -> None:
        """Append a marker."""
        appended = self.log.appender.append_marker(
            ProducerId(producer_id),
            Epoch(epoch),
            is_commit=is_commit,
            coordinator_epoch=Epoch(0),
            now_ms=self.now_ms,
        )
        assert isinstance(appended, Appended)
        self.make_durable()

    # Checkpoints.

    def make(
        self, *, has_commits: bool = True, memory_bytes: int = MEMORY_BYTES
    ) -> MadeCheckpoint | None:
        """Make a checkpoint up to the high watermark."""
        view = self.log.cleaning_view(as_if_rolled=True)
        order = CheckpointOrder(
            log=self.log, view=view, has_commits=has_commits, memory_bytes=memory_bytes
        )
        return make_checkpoint(order, meter_of(self.log, view.generation))

    @property
    def checkpoint(self) -> bytes | None:
        """The bytes of the checkpoint, if there is one."""
        return self.fs.read_bytes(PATH) if self.fs.exists(PATH) else None

    def put(self, checkpoint: bytes | None) -> None:
        """Replace the checkpoint."""
        unlink_if_there(self.fs, PATH)
        if checkpoint is not None:
            self.fs.write_bytes(PATH, checkpoint)
            self.fs.sync_directory("data/orders")

    def load(self) -> tuple[State, LoadReport]:
        """Load the state as a start does."""
        scan, report = load_state(self.log, self.log.high_watermark, new_scan)
        return state_of(scan), report

    def state(self) -> State:
        """Returns the state that the log has without a checkpoint."""
        scan = new_scan()
        feed_log(self.log, self.log.log_start_offset, self.log.high_watermark, scan.feed)
        return state_of(scan)

    # Copies.

    def backup(self) -> MemoryFileSystem:
        """Returns a copy of the disk."""
        return self.fs.after_kill()

    def restore(self, backup: MemoryFileSystem, leader_epoch: int) -> None:
        """Start from a copy of the disk that was made in an earlier run, in the epoch after it."""
        self.fs = backup.after_kill()
        its = opening(is_clean=False, now_ms=self.now_ms, leader_epoch=leader_epoch + 1)
        self.log = open_log(self.fs, identity(), self.log.config, its)
        self.remainder = None

    def cut(self, offset: int) -> None:
        """Truncate the log, and restart."""
        self.log.truncate_to(Offset(offset))
        self.reopen(is_clean=True)
