"""Loads a partition of `__consumer_offsets`: its groups and their committed offsets."""

from __future__ import annotations

from dataclasses import dataclass

from protocol.internal_topics.group_records import GroupRecord, read_record
from protocol.records.offset_commits import OffsetScan
from protocol.wire.errors import ProtocolError
from protocol.wire.numbers import Offset
from server.coordination.coordinator_topic import CoordinatorTopic, decode_values
from server.coordination.groups.committed_offsets import CommittedOffsets, OffsetsByTopic
from server.coordination.state_loading import LoadFailed, LoadReport, load_state
from storage.batches.validate import DECOMPRESSED_BYTES_MAX
from storage.log.log import PartitionLog


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedPartition:
    """The groups of one partition."""

    offsets: dict[str, CommittedOffsets]
    """By group id; only groups with committed or pending offsets."""
    records: tuple[GroupRecord, ...]
    """The last record of each key of the other types, without tombstones; in log order."""
    records_count: int
    """All records read, including superseded ones that were still in the log."""
    unreadable_count: int
    report: LoadReport


async def load_partition(topic: CoordinatorTopic, partition: int) -> LoadedPartition:
    """Load a partition up to its high watermark.

    Raises:
        StorageError: it cannot be read.
    """
    log = await topic.settle(partition)
    loaded = await topic.loading.run(read_partition, log, log.high_watermark)
    topic.checkpoints.loaded(partition, loaded.report)
    return loaded


def read_partition(log: PartitionLog, end_offset: Offset) -> LoadedPartition:
    """Read a log up to `end_offset`. Blocks.

    Raises:
        StorageError: it cannot be read.
    """
    try:
        scan, report = load_state(log, end_offset, _new_scan)
        return _loaded(scan, log, report)
    except ProtocolError as error:
        raise LoadFailed(f"{log.topic_partition}: {error}") from error


def _new_scan() -> OffsetScan:
    return OffsetScan(decompressed_bytes_max=DECOMPRESSED_BYTES_MAX)


def _loaded(scan: OffsetScan, log: PartitionLog, report: LoadReport) -> LoadedPartition:
    records, unreadable_count = decode_values(
        log, scan.others, read_record, unreadable_count=scan.unreadable_count
    )
    return LoadedPartition(
        offsets=_offsets(scan),
        records=tuple(records),
        records_count=scan.records_count,
        unreadable_count=unreadable_count,
        report=report,
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
