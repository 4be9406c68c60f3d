"""ListPartitionReassignments: nothing moves on one broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)
from protocol.wire.error_codes import ErrorCode
from tests.harness.served_broker import serving_broker

SOME = (
    ListPartitionReassignmentsTopics(name="orders", partition_indexes=(0, 7)),
    ListPartitionReassignmentsTopics(name="nowhere", partition_indexes=(0,)),
)


@pytest.mark.parametrize("topics", [None, (), SOME], ids=["all", "none", "some"])
async def test_no_partition_is_listed(
    tmp_path: Path, topics: tuple[ListPartitionReassignmentsTopics, ...] | None
) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        request = ListPartitionReassignmentsRequest(topics=topics)
        response = await served.call(request, 0, ListPartitionReassignmentsResponse)
    assert (response.error_code, response.error_message) == (ErrorCode.NONE, None)
    assert response.topics == ()
