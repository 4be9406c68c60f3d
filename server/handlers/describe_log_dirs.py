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

import asyncio
from collections.abc import Mapping
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
LOGS_A_TURN = 1_000


async def handle(
    request: DescribeLogDirsRequest, context: RequestContext
) -> DescribeLogDirsResponse:
    """Describe each directory on its own."""
    broker = context.broker
    held = await _logs_by_directory(request, context)
    described = [
        await _describe(each, held.get(each.directory_id, {}), broker.files)
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
    """The logs asked for, described; with very many of them the loop gets its turns meanwhile."""
    asked = None
    if request.topics is not None:
        asked = {(topic.topic, number) for topic in request.topics for number in topic.partitions}
    held: dict[str, dict[str, list[DescribeLogDirsPartition]]] = {}
    for count, log in enumerate(context.broker.topics.logs(), start=1):
        if count % LOGS_A_TURN == 0:
            await asyncio.sleep(0)
        name, number = log.topic_partition.topic, log.topic_partition.partition
        if asked is None or (name, number) in asked:
            in_directory = held.setdefault(log.identity.directory_id, {})
            in_directory.setdefault(name, []).append(_partition(log))
    return dict(held)


async def _describe(
    directory: LogDirectory, held: Held, files: FileSystem
) -> DescribeLogDirsResult:
    if directory.offline_reason is not None:
        return _failed(directory.path)
    total_bytes, usable_bytes = await asyncio.to_thread(_ask_disk, files, directory.path)
    return DescribeLogDirsResult(
        error_code=ErrorCode.NONE,
        log_dir=_absolute(directory.path),
        topics=tuple(
            DescribeLogDirsTopic(name=name, partitions=tuple(partitions))
            for name, partitions in held.items()
        ),
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
