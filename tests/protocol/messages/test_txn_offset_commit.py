"""TxnOffsetCommit: bytes as clients send and expect them."""

from __future__ import annotations

import struct

from protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from protocol.wire.decode import decode
from protocol.wire.encode import encode


def request(*, leader_epoch: int, **member: object) -> TxnOffsetCommitRequest:
    partition = TxnOffsetCommitRequestPartition(
        partition_index=2,
        committed_offset=50,
        committed_leader_epoch=leader_epoch,
        committed_metadata=None,
    )
    return TxnOffsetCommitRequest(
        transactional_id="x",
        group_id="g",
        producer_id=1000,
        producer_epoch=7,
        topics=(TxnOffsetCommitRequestTopic(name="t", partitions=(partition,)),),
        **member,  # type: ignore[arg-type]
    )


def test_request_v0() -> None:
    head = b"\0\1x\0\1g" + struct.pack(">qh", 1000, 7)
    data = head + b"\0\0\0\1\0\1t\0\0\0\1" + struct.pack(">iqh", 2, 50, -1)
    assert decode(TxnOffsetCommitRequest, 0, memoryview(data)) == request(leader_epoch=-1)


def test_request_v2_has_leader_epochs() -> None:
    head = b"\0\1x\0\1g" + struct.pack(">qh", 1000, 7)
    data = head + b"\0\0\0\1\0\1t\0\0\0\1" + struct.pack(">iqih", 2, 50, 4, -1)
    assert decode(TxnOffsetCommitRequest, 2, memoryview(data)) == request(leader_epoch=4)


def test_request_v3_says_who_in_the_group_commits() -> None:
    head = b"\2x\2g" + struct.pack(">qhi", 1000, 7, 5) + b"\2m\2i"
    data = head + b"\2\2t\2" + struct.pack(">iqi", 2, 50, 4) + b"\0\0\0\0"
    expected = request(leader_epoch=4, generation_id=5, member_id="m", group_instance_id="i")
    for version in (3, 4, 5):
        assert decode(TxnOffsetCommitRequest, version, memoryview(data)) == expected


def test_response() -> None:
    partition = TxnOffsetCommitResponsePartition(partition_index=2, error_code=90)
    topic = TxnOffsetCommitResponseTopic(name="t", partitions=(partition,))
    response = TxnOffsetCommitResponse(topics=(topic,))
    expected = struct.pack(">ii", 0, 1) + b"\0\1t" + struct.pack(">iih", 1, 2, 90)
    assert encode(response, 0) == [expected]
    expected = struct.pack(">i", 0) + b"\2\2t\2" + struct.pack(">ih", 2, 90) + b"\0\0\0"
    assert encode(response, 3) == [expected]
