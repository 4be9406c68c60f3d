"""ListGroups: all groups, or those of some states and types."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from protocol.wire.error_codes import ErrorCode
from tests.harness.group_requests import AT_ONCE, join, stabilize
from tests.harness.served_broker import serving_broker


@pytest.mark.parametrize("version", range(6))
async def test_groups_are_listed_with_what_the_version_has(tmp_path: Path, version: int) -> None:
    async with serving_broker(tmp_path, **AT_ONCE) as served:
        await stabilize(served)
        response = await served.call(ListGroupsRequest(), version, ListGroupsResponse)
    (group,) = response.groups
    assert response.error_code == ErrorCode.NONE
    assert (group.group_id, group.protocol_type) == ("group", "consumer")
    assert group.group_state == ("Stable" if version >= 4 else "")
    assert group.group_type == ("classic" if version >= 5 else "")


@pytest.mark.parametrize(
    ("states", "types", "listed"),
    [
        ((), (), {"stable", "joining"}),
        (("STABLE", "Empty"), (), {"stable"}),
        (("completingrebalance",), ("Classic",), {"joining"}),
        (("Dead",), (), set()),
        ((), ("consumer",), set()),
    ],
)
async def test_groups_are_listed_by_state_and_type(
    tmp_path: Path, states: tuple[str, ...], types: tuple[str, ...], listed: set[str]
) -> None:
    async with serving_broker(tmp_path, **AT_ONCE) as served:
        await stabilize(served, "stable")
        await join(served, "joining")
        request = ListGroupsRequest(states_filter=states, types_filter=types)
        response = await served.call(request, 5, ListGroupsResponse)
    assert {group.group_id for group in response.groups} == listed


async def test_no_list_is_given_that_is_not_whole(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, **AT_ONCE) as served:
        await stabilize(served)
        served.broker.groups.table.loads._loading.add(0)
        response = await served.call(ListGroupsRequest(), 5, ListGroupsResponse)
    assert response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
