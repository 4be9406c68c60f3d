"""Read a partition of `__consumer_offsets` back: what its groups are, and what they have committed.

A worker thread reads, small piece by small piece, so that the loop has the interpreter in between. It
takes as long as the partition is large, which our cleaner bounds.

A record that nobody can read is left where it is, counted and said. A *value* of a later release is
another matter: what it says must not be replaced by what is older, so the partition is not served.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from protocol.error_codes import ErrorCode
from protocol.errors import DecodeError, ProtocolError
from protocol.group_records import GroupRecord, UnknownGroupKey, UnknownGroupRecord, read_record
from protocol.offset_commits import OffsetScan
from server.groups.committed_offsets import CommittedOffsets
from server.groups.offsets_topic import OffsetsTopic
from storage.errors import StorageError
from storage.log import PartitionLog
from storage.reader import Isolation
from storage.validate import DECOMPRESSED_BYTES_MAX

_log = logging.getLogger("server.groups")

PIECE_BYTES = 256 << 10
"""The interpreter is held while a piece is taken: about a millisecond."""


class LoadFailed(StorageError):
    """A partition's groups cannot be served, because of what stands in it, or cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedPartition:
    """What there is of the groups in one partition."""

    offsets: dict[str, CommittedOffsets]
    """By group id; of groups that have committed something."""
    records: tuple[GroupRecord, ...]
    """Of each key of another type its last record, unless that was a tombstone; in the log's order."""
    records_count: int
    """All that were read, the superseded ones included."""
    unreadable_count: int


async def load_partition(topic: OffsetsTopic, partition: int) -> LoadedPartition:
    """Read all that was ever appended to a partition.

    Raises:
        StorageError: it cannot be read.
    """
    log = await topic.settle(partition)
    return await asyncio.to_thread(read_partition, log, log.high_watermark)


def read_partition(log: PartitionLog, end_offset: int) -> LoadedPartition:
    """Read a log up to `end_offset`. Blocks.

    Raises:
        StorageError: it cannot be read.
    """
    scan = OffsetScan(decompressed_bytes_max=DECOMPRESSED_BYTES_MAX)
    try:
        _feed(scan, log, end_offset)
        return _loaded(scan, log)
    except ProtocolError as error:
        raise LoadFailed(f"{log.topic_partition}: {error}") from error


def _feed(scan: OffsetScan, log: PartitionLog, end_offset: int) -> None:
    offset = log.log_start_offset
    while offset < end_offset:
        read = log.read(
            offset,
            max_bytes=PIECE_BYTES,
            whole_first_batch=True,
            isolation=Isolation.READ_UNCOMMITTED,
        )
        if isinstance(read, ErrorCode):
            raise LoadFailed(f"{log.topic_partition}: offset {offset}: {read.message}")
        try:
            pieces = [region.read_bytes() for region in read.regions]
        finally:
            read.release()
        if not pieces:
            return  # Only batches without records are left.
        for piece in pieces:
            offset = scan.feed(piece)


def _loaded(scan: OffsetScan, log: PartitionLog) -> LoadedPartition:
    records, unreadable_count = [], scan.unreadable_count
    for key, value in scan.others.items():
        try:
            records.append(read_record(key, value))
        except UnknownGroupKey:
            unreadable_count += 1
        except UnknownGroupRecord:
            raise
        except DecodeError:
            unreadable_count += 1
    if unreadable_count:
        _log.warning(
            "%s: %d records are none that this release can read, and were left alone",
            log.topic_partition,
            unreadable_count,
        )
    by_group = ((group, CommittedOffsets(topics)) for group, topics in scan.offsets.items())
    return LoadedPartition(
        offsets={group: offsets for group, offsets in by_group if offsets},
        records=tuple(records),
        records_count=scan.records_count,
        unreadable_count=unreadable_count,
    )
