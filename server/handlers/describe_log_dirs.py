"""DescribeLogDirs (key 35), v1-v5.

Behaviour: every log directory, with the partitions asked for that it holds, all of them for null, and
the size of their segments. A directory that is out of service, or could not be opened, has
KAFKA_STORAGE_ERROR. Where the disk does not tell its size, that is -1. A log has no lag: it is its
partition's only one, and none is ever on its way to another directory. No directory is cordoned.
Versions: v3 error_code of the whole answer · v4 total_bytes, usable_bytes (KIP-827) · v5
is_cordoned (KIP-1066).
Source: KIP-113; Apache Kafka, ReplicaManager.scala `describeLogDirs`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from protocol.error_codes import ErrorCode
from protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from server.dispatch import RequestContext
from storage.errors import DiskError
from storage.files import FileSystem
from storage.log import PartitionLog
from storage.log_directory import LogDirectory

UNKNOWN = -1


async def handle(
    request: DescribeLogDirsRequest, context: RequestContext
) -> DescribeLogDirsResponse:
    """Describe each directory on its own."""
    broker = context.broker
    held = await _logs_by_directory(request, context)
    described = [
        await _describe(each, held.get(each.directory_id, {}), context)
        for each in broker.directories
    ]
    lost = [_failed(path) for path in broker.directories_left_out]
    return DescribeLogDirsResponse(results=tuple(described + lost))


def refuse(
    request: DescribeLogDirsRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> DescribeLogDirsResponse:
    paths = context.broker.config.data_directories
    return DescribeLogDirsResponse(
        error_code=error_code, results=tuple(_failed(path, error_code) for path in paths)
    )


Held = Mapping[str, list[DescribeLogDirsPartition]]
"""What a directory holds, by topic."""


async def _logs_by_directory(
    request: DescribeLogDirsRequest, context: RequestContext
) -> dict[str, Held]:
    """The logs asked for, described, each once."""
    held: dict[str, dict[str, list[DescribeLogDirsPartition]]] = {}
    async for log in _asked_logs(request, context):
        in_directory = held.setdefault(log.identity.directory_id, {})
        in_directory.setdefault(log.topic_partition.topic, []).append(_partition(log))
    return dict(held)


async def _asked_logs(
    request: DescribeLogDirsRequest, context: RequestContext
) -> AsyncIterator[PartitionLog]:
    """The logs asked for that could be opened, each once."""
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
        _ask_disk, context.broker.files, directory.path
    )
    context.pace.begin()
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


def _ask_disk(files: FileSystem, path: str) -> tuple[int, int]:
    """Total and usable bytes of the volume; in a thread, because a disk may hang."""
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
