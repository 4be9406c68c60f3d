"""DescribeCluster: the cluster's id and its broker, as the client's listener has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from protocol.wire.error_codes import ErrorCode
from tests.harness.served_broker import serving_broker


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_the_broker_is_described(tmp_path: Path, version: int) -> None:
    async with serving_broker(tmp_path) as served:
        request = DescribeClusterRequest(include_cluster_authorized_operations=False)
        response = await served.call(request, version, DescribeClusterResponse)
        node = served.broker.node
        assert response.error_code == ErrorCode.NONE
        assert (response.cluster_id, response.controller_id) == (node.cluster_id, node.node_id)
        (broker,) = response.brokers
        assert (broker.host, broker.port) == served.broker.addresses["PLAINTEXT"]
        assert (broker.broker_id, broker.is_fenced) == (node.node_id, False)
        assert response.cluster_authorized_operations == -(2**31)


async def test_who_asks_what_it_may_do_may_do_everything(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        request = DescribeClusterRequest(include_cluster_authorized_operations=True)
        response = await served.call(request, 2, DescribeClusterResponse)
    assert response.cluster_authorized_operations == 8096


@pytest.mark.parametrize(
    ("endpoint_type", "code"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
    ids=["controllers", "unknown"],
)
async def test_only_brokers_are_described(
    tmp_path: Path, endpoint_type: int, code: ErrorCode
) -> None:
    async with serving_broker(tmp_path) as served:
        request = DescribeClusterRequest(
            include_cluster_authorized_operations=False, endpoint_type=endpoint_type
        )
        response = await served.call(request, 1, DescribeClusterResponse)
    assert response.error_code == code
    assert response.error_message
    assert response.brokers == ()
