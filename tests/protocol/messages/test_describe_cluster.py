"""DescribeCluster: bytes as clients send and expect them."""

from __future__ import annotations

from protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from protocol.wire.decode import decode
from protocol.wire.encode import encode


def test_requests() -> None:
    for version, data, request in (
        (0, b"\1\0", DescribeClusterRequest(include_cluster_authorized_operations=True)),
        (
            2,
            b"\0\2\1\0",
            DescribeClusterRequest(
                include_cluster_authorized_operations=False,
                endpoint_type=2,
                include_fenced_brokers=True,
            ),
        ),
    ):
        assert decode(DescribeClusterRequest, version, memoryview(data)) == request


def test_response_v2_says_which_brokers_are_fenced() -> None:
    broker = DescribeClusterBroker(broker_id=1, host="h", port=9092, is_fenced=True)
    response = DescribeClusterResponse(
        error_code=0, cluster_id="c", controller_id=1, brokers=(broker,)
    )
    (part,) = encode(response, 2)
    listed = b"\0\0\0\1" + b"\2h" + b"\0\0\x23\x84" + b"\0" + b"\1" + b"\0"
    head = b"\0\0\0\0" + b"\0\0" + b"\0" + b"\1" + b"\2c" + b"\0\0\0\1"
    assert part == head + b"\2" + listed + b"\x80\0\0\0" + b"\0"
