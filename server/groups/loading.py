"""Read a partition of `__consumer_offsets` back: what its groups are, and what they have committed."""

from __future__ import annotations

from dataclasses import dataclass

from protocol.errors import ProtocolError
from protocol.group_records import GroupRecord, read_record
from protocol.offset_commits import OffsetScan
from server.coordinator_topic import CoordinatorTopic, LoadFailed, feed_log, readable
from server.groups.committed_offsets import CommittedOffsets, OffsetsByTopic
from storage.log import PartitionLog
from storage.validate import DECOMPRESSED_BYTES_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedPartition:
    """What there is of the groups in one partition."""

    offsets: dict[str, CommittedOffsets]
    """By group id; of groups that have committed something, if only in a transaction."""
    records: tuple[GroupRecord, ...]
    """Of each key of another type its last record, unless that was a tombstone; in the log's order."""
    records_count: int
    """All that were read, the superseded ones included."""
    unreadable_count: int


async def load_partition(topic: CoordinatorTopic, partition: int) -> LoadedPartition:
    """Read all that was ever appended to a partition.

    Raises:
        StorageError: it cannot be read.
    """
    log = await topic.settle(partition)
    return await topic.loading.run(read_partition, log, log.high_watermark)


def read_partition(log: PartitionLog, end_offset: int) -> LoadedPartition:
    """Read a log up to `end_offset`. Blocks.

    Raises:
        StorageError: it cannot be read.
    """
    scan = OffsetScan(decompressed_bytes_max=DECOMPRESSED_BYTES_MAX)
    try:
        feed_log(log, end_offset, scan.feed)
        return _loaded(scan, log)
    except ProtocolError as error:
        raise LoadFailed(f"{log.topic_partition}: {error}") from error


def _loaded(scan: OffsetScan, log: PartitionLog) -> LoadedPartition:
    records, unreadable_count = readable(
        log, scan.others, read_record, unreadable_count=scan.unreadable_count
    )
    return LoadedPartition(
        offsets=_offsets(scan),
        records=tuple(records),
        records_count=scan.records_count,
        unreadable_count=unreadable_count,
    )


def _offsets(scan: OffsetScan) -> dict[str, CommittedOffsets]:
    pending: dict[str, dict[int, OffsetsByTopic]] = {}
    for producer_id, groups in scan.pending.items():
        for group, topics in groups.items():
            pending.setdefault(group, {})[producer_id] = topics
    found = {
        group: CommittedOffsets(scan.offsets.get(group), pending.get(group))
        for group in dict.fromkeys((*scan.offsets, *pending))
    }
    return {group: offsets for group, offsets in found.items() if offsets}
