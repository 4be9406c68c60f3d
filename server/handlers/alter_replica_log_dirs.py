"""AlterReplicaLogDirs (key 34), v1-v2.

Behaviour: NONE for a log that already is in the directory. A directory that does not belong to this
broker gets LOG_DIR_NOT_FOUND, an offline one KAFKA_STORAGE_ERROR. Logs do not move between directories
while the broker runs: any other directory gets INVALID_REPLICA_ASSIGNMENT, which Kafka never answers.
For a partition that is named more than once the last directory counts, with one answer, as in Kafka.
Not implemented: moving a log.
Source: KIP-113; Apache Kafka, ReplicaManager.scala `alterReplicaLogDirs`.
"""

from __future__ import annotations

from pathlib import Path

from protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from protocol.wire.error_codes import ErrorCode
from protocol.wire.lazy_array import lazy_array
from server.request_context import RequestContext
from storage.log.directory import LogDirectory

Targets = dict[str, dict[int, str]]
"""The requested directory, by topic and partition."""

Directories = dict[str, LogDirectory | None]
"""The directories of `log.dirs` by absolute path; None where one could not be opened."""


async def handle(
    request: AlterReplicaLogDirsRequest, context: RequestContext
) -> AlterReplicaLogDirsResponse:
    """Check the requested directory of each partition."""
    targets = await _targets(request, context)
    directories = _directories(context)
    results = []
    async for name, places in context.pace.paced(targets.items()):
        answers = [
            _result(number, _check(name, number, path, directories, context))
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
        results=lazy_array(
            lambda topic: AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=lazy_array(lambda number: _result(number, error_code), topic.partitions),
            ),
            [topic for directory in request.dirs for topic in directory.topics],
        )
    )


async def _targets(request: AlterReplicaLogDirsRequest, context: RequestContext) -> Targets:
    """Returns the requested directory of each partition, without topics that list no partitions
    (as in Kafka)."""
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


def _check(
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
