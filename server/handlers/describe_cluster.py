"""DescribeCluster (key 60), v0-v2.

Behaviour: returns the cluster id and the one broker, at the address that the client's listener
advertises. There is no controller endpoint, and no broker is ever fenced.
Versions: v1 endpoint_type (KIP-919) · v2 fenced brokers (KIP-1073).
Source: KIP-700; Apache Kafka, AuthHelper.scala `computeDescribeClusterResponse`.
"""

from __future__ import annotations

from protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from protocol.wire.error_codes import ErrorCode
from server.request_context import RequestContext

BROKERS = 1
CONTROLLERS = 2


async def handle(
    request: DescribeClusterRequest, context: RequestContext
) -> DescribeClusterResponse:
    """Describe the cluster; refuse requests for controllers."""
    if request.endpoint_type == CONTROLLERS:
        text = (
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type"
            " CONTROLLER"
        )
        return refuse(request, context, ErrorCode.MISMATCHED_ENDPOINT_TYPE, text)
    if request.endpoint_type != BROKERS:
        text = f"Unsupported endpoint type {request.endpoint_type}"
        return refuse(request, context, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, text)
    return _describe(request, context)


def refuse(
    request: DescribeClusterRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> DescribeClusterResponse:
    return DescribeClusterResponse(
        error_code=error_code, error_message=message, cluster_id="", brokers=()
    )


def _describe(request: DescribeClusterRequest, context: RequestContext) -> DescribeClusterResponse:
    node, endpoint = context.broker.node, context.connection.endpoint
    return DescribeClusterResponse(
        error_code=ErrorCode.NONE,
        cluster_id=node.cluster_id,
        controller_id=node.controller_id,
        brokers=(
            DescribeClusterBroker(broker_id=node.node_id, host=endpoint.host, port=endpoint.port),
        ),
        cluster_authorized_operations=context.operations_on_cluster(
            is_asked=request.include_cluster_authorized_operations
        ),
    )
