"""Whether a checkpoint counts for a log: pure decisions.

A load may use a checkpoint only if it then has the state that the log alone would give it. So:

    same log        topic id, partition and log start are those of the checkpoint (a log start that has
                    moved has removed records that the checkpoint still holds)
    not cut         the high watermark is at or past its end, and the log has the batch that ended
                    there, with the same leader epoch and the same CRC: it was neither truncated and
                    written again, nor restored from a copy and written again
    no gap          every offset from its end on has its record. A cleaning pass that has dropped one
                    there may also have dropped a tombstone, or the marker of a transaction that is
                    still open in the checkpoint. The reader of that part finds the gaps.

Cleaning before the end does no harm: it drops only what the state does not have.

A standby's copy of a log (`server/standby/partition_copy.py`) is the exception to "same log": it drops
the log before its checkpoint, so it starts where the checkpoint ends, or in between, and the checkpoint
is the only thing that has the state there. A log that is not a copy must never be judged so: where
DeleteRecords has moved its start to the checkpoint's end, the records below are deleted.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from protocol.records.batch_header import read_header
from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Epoch, Offset
from storage.formats.coordinator_checkpoint import CheckpointHeader
from storage.log.log import PartitionLog
from storage.segment.reader import Isolation

GAP = "a cleaning pass has dropped records after its end"


@dataclass(frozen=True, slots=True, kw_only=True)
class LastBatch:
    """The batch in the log that ends at a checkpoint's end."""

    epoch: Epoch
    crc: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPlace:
    """What a log says about the place at which a checkpoint ends."""

    topic_id: uuid.UUID
    partition: int
    start_offset: Offset
    high_watermark: Offset
    last_batch: LastBatch | None
    """None if no batch of the log ends there."""


def objection(header: CheckpointHeader, place: LogPlace, *, is_copy: bool = False) -> str | None:
    """Returns why a checkpoint does not count for a log; None if it does, unless there is a gap.

    Args:
        is_copy: whether the log is a standby's copy, which drops what its checkpoint has.
    """
    if (header.topic_id, header.partition) != (place.topic_id, place.partition):
        return "it belongs to another topic or partition"
    if is_copy and header.end_offset == place.start_offset:
        # The batch that ended there is gone with the log before it.
        return None
    if not is_copy and header.start_offset != place.start_offset:
        return f"the log starts at {place.start_offset}, no longer at {header.start_offset}"
    if header.end_offset > place.high_watermark:
        return f"it ends at {header.end_offset}, the log at {place.high_watermark}"
    if place.last_batch != LastBatch(epoch=header.last_epoch, crc=header.last_crc):
        return f"the log does not have the batch that ended at offset {header.end_offset}"
    return None


def place_in(log: PartitionLog, end_offset: Offset) -> LogPlace:
    """Look at the place in a log at which a checkpoint ends. Blocks. Raises StorageError."""
    return LogPlace(
        topic_id=log.topic_id,
        partition=log.topic_partition.partition,
        start_offset=log.log_start_offset,
        high_watermark=log.high_watermark,
        last_batch=_last_batch(log, end_offset),
    )


def _last_batch(log: PartitionLog, end_offset: Offset) -> LastBatch | None:
    if not log.log_start_offset < end_offset <= log.high_watermark:
        return None
    read = log.reader.read(
        Offset(end_offset - 1),
        max_bytes=1,
        whole_first_batch=True,
        isolation=Isolation.READ_UNCOMMITTED,
    )
    if isinstance(read, ErrorCode):
        return None
    try:
        data = b"".join(region.read_bytes() for region in read.regions)
    finally:
        read.release()
    if not data:
        return None
    header = read_header(data)
    if header.last_offset + 1 != end_offset:
        return None
    return LastBatch(epoch=Epoch(header.leader_epoch), crc=header.crc)
