"""AlterReplicaLogDirs (key 34), v1-v2.

Behaviour: a log that is in the directory already stays there: NONE. A directory that is none of this
broker's is LOG_DIR_NOT_FOUND, one out of service KAFKA_STORAGE_ERROR. Logs do not move between
directories while the broker runs: that is INVALID_REPLICA_ASSIGNMENT, which Kafka does not answer. Of a
partition that is named more than once the last directory counts, and it is answered once, as in Kafka.
Not implemented: moving a log.
Source: KIP-113; Apache Kafka, ReplicaManager.scala `alterReplicaLogDirs`.
"""

from __future__ import annotations

from pathlib import Path

from protocol.error_codes import ErrorCode
from protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from server.dispatch import RequestContext
from storage.log_directory import LogDirectory

Targets = dict[str, dict[int, str]]
"""By topic and partition, the directory where it shall be."""

Directories = dict[str, LogDirectory | None]
"""The directories of `log.dirs` by absolute path; None where one could not be opened."""


async def handle(
    request: AlterReplicaLogDirsRequest, context: RequestContext
) -> AlterReplicaLogDirsResponse:
    """Answer for each partition on its own."""
    targets = await _targets(request, context)
    directories = _directories(context)
    results = []
    async for name, places in context.pace.paced(targets.items()):
        answers = [
            _result(number, _code(name, number, path, directories, context))
            async for number, path in context.pace.paced(places.items())
        ]
        results.append(AlterReplicaLogDirTopicResult(topic_name=name, partitions=tuple(answers)))
    return AlterReplicaLogDirsResponse(results=tuple(results))


def refuse(
    request: AlterReplicaLogDirsRequest,
    context: RequestContext,
    error_code: ErrorCode,
    message: str,
) -> AlterReplicaLogDirsResponse:
    return AlterReplicaLogDirsResponse(
        results=tuple(
            AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=tuple(_result(number, error_code) for number in topic.partitions),
            )
            for directory in request.dirs
            for topic in directory.topics
        )
    )


async def _targets(request: AlterReplicaLogDirsRequest, context: RequestContext) -> Targets:
    """Where each partition shall be. A topic without partitions is left out, as in Kafka."""
    targets: Targets = {}
    async for directory in context.pace.paced(request.dirs):
        async for topic in context.pace.paced(directory.topics):
            async for number in context.pace.paced(topic.partitions):
                targets.setdefault(topic.name, {})[number] = directory.path
    return targets


def _directories(context: RequestContext) -> Directories:
    broker = context.broker
    opened: Directories = {_absolute(each.path): each for each in broker.directories}
    return opened | {_absolute(path): None for path in broker.directories_left_out}


def _code(
    name: str, number: int, path: str, directories: Directories, context: RequestContext
) -> ErrorCode:
    if path not in directories:
        return ErrorCode.LOG_DIR_NOT_FOUND
    directory = directories[path]
    if directory is None or directory.offline_reason is not None:
        return ErrorCode.KAFKA_STORAGE_ERROR
    log = context.log_of(name, number)
    if isinstance(log, ErrorCode):
        return log
    if log.identity.directory_id != directory.directory_id:
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT
    return ErrorCode.NONE


def _result(number: int, error_code: ErrorCode) -> AlterReplicaLogDirPartitionResult:
    return AlterReplicaLogDirPartitionResult(partition_index=number, error_code=error_code)


def _absolute(path: str) -> str:
    return str(Path(path).absolute())
