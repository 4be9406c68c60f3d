"""WriteTxnMarkers: bytes as clients send and expect them."""

from __future__ import annotations

import struct

from protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopic,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from protocol.wire.decode import decode
from protocol.wire.encode import encode


def test_request_v1() -> None:
    marker = WritableTxnMarker(
        producer_id=1000,
        producer_epoch=7,
        transaction_result=False,
        topics=(WritableTxnMarkerTopic(name="t", partition_indexes=(2,)),),
        coordinator_epoch=-1,
    )
    topics = b"\2\2t" + b"\2\0\0\0\2" + b"\0"
    data = b"\2" + struct.pack(">qh?", 1000, 7, False) + topics + b"\xff" * 4 + b"\0\0"
    expected = WriteTxnMarkersRequest(markers=(marker,))
    assert decode(WriteTxnMarkersRequest, 1, memoryview(data)) == expected


def test_response_v1() -> None:
    partition = WritableTxnMarkerPartitionResult(partition_index=2, error_code=47)
    topic = WritableTxnMarkerTopicResult(name="t", partitions=(partition,))
    result = WritableTxnMarkerResult(producer_id=1000, topics=(topic,))
    partitions = b"\2\0\0\0\2\0\x2f\0"
    data = b"\2" + struct.pack(">q", 1000) + b"\2\2t" + partitions + b"\0\0\0"
    assert encode(WriteTxnMarkersResponse(markers=(result,)), 1) == [data]
