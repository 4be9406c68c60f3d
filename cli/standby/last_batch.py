"""Whether a leader still has the last batch of a copy: compared by its CRC at each connection.

A Fetch compares epochs only, so a leader that was restored from an older backup may have written another
history in an epoch that was followed. The first fetch begins with the copy's last batch:

    the leader's first batch                       what it means
    begins there, with the same CRC                the same history
    begins there, with another CRC                 another history, unless the cleaner has changed it
    begins within the copy's batch, or before      another history
    begins after it                                the cleaner has removed it

The cleaner leaves records out, or notes when tombstones may go; both show in the header.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.records.batch_header import DELETE_HORIZON, BatchHeader, read_header
from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Offset
from storage.log.log import PartitionLog
from storage.segment.reader import Isolation


@dataclass(frozen=True, slots=True, kw_only=True)
class LastBatch:
    """The last batch of a copy's log."""

    base_offset: Offset
    end: Offset
    crc: int


def last_batch_of(log: PartitionLog) -> LastBatch | None:
    """Returns the last batch below the high watermark; None if there is none. Raises StorageError."""
    end = log.high_watermark
    if end <= log.log_start_offset:
        return None
    read = log.reader.read(
        Offset(end - 1), max_bytes=1, whole_first_batch=True, isolation=Isolation.READ_UNCOMMITTED
    )
    if isinstance(read, ErrorCode) or not read.regions:
        return None
    try:
        header = read_header(read.regions[0].read_bytes())
    finally:
        read.release()
    return LastBatch(base_offset=header.base_offset, end=header.next_offset, crc=header.crc)


def is_another(ours: LastBatch, theirs: BatchHeader) -> bool:
    """Returns whether the leader's first batch from ours on belongs to another history."""
    if theirs.base_offset != ours.base_offset:
        return theirs.base_offset < ours.end
    if theirs.next_offset != ours.end:
        return True
    has_all_records = theirs.record_count == theirs.next_offset - theirs.base_offset
    is_cleaned = bool(theirs.attributes & DELETE_HORIZON) or not has_all_records
    return theirs.crc != ours.crc and not is_cleaned
