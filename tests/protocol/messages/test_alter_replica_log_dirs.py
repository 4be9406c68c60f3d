"""AlterReplicaLogDirs: bytes as clients send and expect them."""

from __future__ import annotations

from protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
    AlterReplicaLogDirTopicResult,
)
from protocol.wire.decode import decode
from protocol.wire.encode import encode


def test_request_v2() -> None:
    topic = AlterReplicaLogDirTopic(name="t", partitions=(3,))
    request = AlterReplicaLogDirsRequest(dirs=(AlterReplicaLogDir(path="/d", topics=(topic,)),))
    data = b"\2" + b"\3/d" + b"\2" + b"\2t" + b"\2\0\0\0\3" + b"\0" + b"\0" + b"\0"
    assert decode(AlterReplicaLogDirsRequest, 2, memoryview(data)) == request


def test_response_v1() -> None:
    partition = AlterReplicaLogDirPartitionResult(partition_index=3, error_code=57)
    topic = AlterReplicaLogDirTopicResult(topic_name="t", partitions=(partition,))
    (part,) = encode(AlterReplicaLogDirsResponse(results=(topic,)), 1)
    named = b"\0\1t" + b"\0\0\0\1" + b"\0\0\0\3" + b"\0\x39"
    assert part == b"\0\0\0\0" + b"\0\0\0\1" + named
