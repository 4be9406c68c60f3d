"""DescribeCluster (key 60), flexible since v0.

Versions: v1 endpoint_type (KIP-919) · v2 fenced brokers (KIP-1073).
Source: DescribeClusterRequest.json, DescribeClusterResponse.json.
"""

from __future__ import annotations

from protocol.wire.schema import (
    BOOL,
    INT8,
    INT16,
    INT32,
    STRING,
    Message,
    array,
    wire,
    wire_class,
)


@wire_class
class DescribeClusterRequest(Message):
    """The parts of the cluster to describe."""

    api_key = 60
    versions = (0, 2)
    flexible_since = 0

    include_cluster_authorized_operations: bool = wire(BOOL)
    endpoint_type: int = wire(INT8, since=1, default=1)
    """1: brokers; 2: controllers."""
    include_fenced_brokers: bool = wire(BOOL, since=2, default=False)


@wire_class
class DescribeClusterBroker:
    """One broker, under the address that the client's listener advertises."""

    broker_id: int = wire(INT32)
    host: str = wire(STRING)
    port: int = wire(INT32)
    rack: str | None = wire(STRING, nullable_since=0, default=None)
    is_fenced: bool = wire(BOOL, since=2, default=False)


@wire_class
class DescribeClusterResponse(Message):
    """The cluster and its brokers."""

    api_key = 60
    versions = (0, 2)
    flexible_since = 0

    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable_since=0, default=None)
    endpoint_type: int = wire(INT8, since=1, default=1)
    cluster_id: str = wire(STRING)
    controller_id: int = wire(INT32, default=-1)
    brokers: tuple[DescribeClusterBroker, ...] = wire(array(DescribeClusterBroker))
    cluster_authorized_operations: int = wire(INT32, default=-(2**31))
    """One bit per operation; the default means that the client did not ask for them."""
