"""DescribeLogDirs (key 35), v1-v5.

Behaviour: lists every log directory with the requested partitions in it (all for null) and the size of
their segments. A directory that is offline, or could not be opened, gets KAFKA_STORAGE_ERROR. If the
disk does not report its size, it is -1. The lag is always 0, because a partition has only one log and
logs never move between directories. No directory is cordoned.
Versions: v3 error_code of the whole answer · v4 total_bytes, usable_bytes (KIP-827) · v5
is_cordoned (KIP-1066).
Source: KIP-113; Apache Kafka, ReplicaManager.scala `describeLogDirs`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from protocol.wire.error_codes import ErrorCode
from server.request_context import RequestContext
from storage.files.errors import DiskError
from storage.files.files import FileSystem
from storage.log.directory import LogDirectory
from storage.log.log import PartitionLog

UNKNOWN = -1


async def handle(
    request: DescribeLogDirsRequest, context: RequestContext
) -> DescribeLogDirsResponse:
    """Describe each directory independently."""
    broker = context.broker
    held = await _logs_by_directory(request, context)
    described = [
        await _describe(each, held.get(each.directory_id, {}), context)
        for each in broker.directories
    ]
    left_out = [_failed(path) for path in broker.directories_left_out]
    return DescribeLogDirsResponse(results=tuple(described + left_out))


def refuse(
    request: DescribeLogDirsRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> DescribeLogDirsResponse:
    if error_code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        # The paths are not for everyone.
        return DescribeLogDirsResponse(error_code=error_code, results=())
    paths = context.broker.config.data_directories
    return DescribeLogDirsResponse(
        error_code=error_code, results=tuple(_failed(path, error_code) for path in paths)
    )


Held = Mapping[str, list[DescribeLogDirsPartition]]
"""The requested partitions in a directory, by topic."""


async def _logs_by_directory(
    request: DescribeLogDirsRequest, context: RequestContext
) -> dict[str, Held]:
    """Returns the descriptions of the requested logs, each once, by the id of their directory."""
    held: dict[str, dict[str, list[DescribeLogDirsPartition]]] = {}
    async for log in _asked_logs(request, context):
        in_directory = held.setdefault(log.identity.directory_id, {})
        in_directory.setdefault(log.topic_partition.topic, []).append(_partition(log))
    return dict(held)


async def _asked_logs(
    request: DescribeLogDirsRequest, context: RequestContext
) -> AsyncIterator[PartitionLog]:
    """Yields the requested logs that could be opened, each once."""
    topics, pace = context.broker.topics, context.pace
    if request.topics is None:
        async for topic in pace.paced(topics.all()):
            async for each in pace.paced(topic.partitions):
                if isinstance(each, PartitionLog):
                    yield each
        return
    seen: set[tuple[str, int]] = set()
    async for asked in pace.paced(request.topics):
        async for number in pace.paced(asked.partitions):
            found = topics.get(asked.topic)
            if found is None or not 0 <= number < len(found.partitions):
                continue
            log = found.partitions[number]
            if isinstance(log, PartitionLog) and (found.name, number) not in seen:
                seen.add((found.name, number))
                yield log
    await pace.empty(seen)


async def _describe(
    directory: LogDirectory, held: Held, context: RequestContext
) -> DescribeLogDirsResult:
    if directory.offline_reason is not None:
        return _failed(directory.path)
    total_bytes, usable_bytes = await context.broker.executors.upkeep.run(
        _read_disk_space, context.broker.files, directory.path
    )
    topics = [
        DescribeLogDirsTopic(name=name, partitions=tuple(partitions))
        async for name, partitions in context.pace.paced(held.items())
    ]
    return DescribeLogDirsResult(
        error_code=ErrorCode.NONE,
        log_dir=_absolute(directory.path),
        topics=tuple(topics),
        total_bytes=total_bytes,
        usable_bytes=usable_bytes,
    )


def _read_disk_space(files: FileSystem, path: str) -> tuple[int, int]:
    """Returns the total and usable bytes of the volume. Runs in a thread, because a disk may hang."""
    try:
        return files.volume_bytes(path), files.free_bytes(path)
    except DiskError:
        return UNKNOWN, UNKNOWN


def _partition(log: PartitionLog) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(
        partition_index=log.topic_partition.partition,
        partition_size=log.size_bytes,
        offset_lag=0,
        is_future_key=False,
    )


def _failed(
    path: str, error_code: ErrorCode = ErrorCode.KAFKA_STORAGE_ERROR
) -> DescribeLogDirsResult:
    return DescribeLogDirsResult(error_code=error_code, log_dir=_absolute(path), topics=())


def _absolute(path: str) -> str:
    return str(Path(path).absolute())
