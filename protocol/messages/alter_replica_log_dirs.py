"""AlterReplicaLogDirs (key 34) (KIP-113).

Versions: v2 flexible.
Source: AlterReplicaLogDirsRequest.json, AlterReplicaLogDirsResponse.json.
"""

from __future__ import annotations

from protocol.wire.schema import INT16, INT32, STRING, Message, array, wire, wire_class


@wire_class
class AlterReplicaLogDirTopic:
    """Partitions of one topic."""

    name: str = wire(STRING)
    partitions: tuple[int, ...] = wire(array(INT32))


@wire_class
class AlterReplicaLogDir:
    """A log directory, and the partitions to move there."""

    path: str = wire(STRING)
    topics: tuple[AlterReplicaLogDirTopic, ...] = wire(array(AlterReplicaLogDirTopic))


@wire_class
class AlterReplicaLogDirsRequest(Message):
    """The log directories with the partitions to move to each."""

    api_key = 34
    versions = (1, 2)
    flexible_since = 2

    dirs: tuple[AlterReplicaLogDir, ...] = wire(array(AlterReplicaLogDir))


@wire_class
class AlterReplicaLogDirPartitionResult:
    """The result for one partition."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)


@wire_class
class AlterReplicaLogDirTopicResult:
    """The partitions of one topic."""

    topic_name: str = wire(STRING)
    partitions: tuple[AlterReplicaLogDirPartitionResult, ...] = wire(
        array(AlterReplicaLogDirPartitionResult)
    )


@wire_class
class AlterReplicaLogDirsResponse(Message):
    """A result for each partition."""

    api_key = 34
    versions = (1, 2)
    flexible_since = 2

    throttle_time_ms: int = wire(INT32, default=0)
    results: tuple[AlterReplicaLogDirTopicResult, ...] = wire(array(AlterReplicaLogDirTopicResult))
