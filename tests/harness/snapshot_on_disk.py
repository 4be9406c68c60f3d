"""The logs of a snapshot, opened from its directories as a restore would find them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from server.topics.names import parse_id
from storage.files.files import FileSystem
from storage.files.local_files import LocalFileSystem
from storage.formats.log_identity import LogIdentity
from storage.formats.topic_partition import TopicPartition
from storage.log.log import PartitionLog
from storage.snapshots.descriptor import SnapshotDescriptor
from tests.harness.compacted_log import CONFIG, records_of
from tests.harness.kept_moment import opened_copy
from tests.harness.log_transactions import committed_offsets

Logs = Mapping[tuple[str, int], PartitionLog]


def opened_snapshot(
    its: SnapshotDescriptor, root: str | None = None, *, fs: FileSystem | None = None
) -> Logs:
    """Returns the logs of a complete snapshot. Each must verify, and be as after a clean stop.

    Args:
        root: the only log directory, if it is not where it was.
    """
    paths = {each.id: each.path if root is None else root for each in its.directories}
    logs: dict[tuple[str, int], PartitionLog] = {}
    for topic in its.topics:
        for each in topic.partitions:
            name = f"snapshots/{its.id}/{topic.directory_name}/{each.partition}"
            identity = LogIdentity(
                topic_partition=TopicPartition(topic.name, each.partition),
                topic_id=parse_id(topic.id),
                directory="",
                directory_id=each.directory,
                hash_key=_hash_key(fs, f"{paths[each.directory]}/snapshots/{its.id}/hash.key"),
            )
            directory = f"{paths[each.directory]}/{name}"
            log = opened_copy(
                fs or LocalFileSystem(),
                directory,
                its=identity,
                config=CONFIG,
                is_cut=its.at_ms is not None,
            )
            ends = (log.log_start_offset, log.log_end_offset, log.size_bytes)
            assert ends == (each.start_offset, each.end_offset, each.bytes)
            logs[topic.name, each.partition] = log
    return logs


def _hash_key(fs: FileSystem | None, path: str) -> bytes:
    return Path(path).read_bytes() if fs is None else fs.read_bytes(path)


def values_in(log: PartitionLog) -> list[bytes | None]:
    """Returns the values of all records, also of open and of aborted transactions."""
    return [each.value for each in records_of(log)]


def committed_values(log: PartitionLog) -> list[bytes | None]:
    """Returns the values that a read_committed consumer gets."""
    committed = set(committed_offsets(log, max_bytes=1 << 20))
    return [each.value for each in records_of(log) if each.offset in committed]


def close(logs: Logs) -> None:
    """Close the files."""
    for log in logs.values():
        for segment in log.segments:
            segment.files.close()
