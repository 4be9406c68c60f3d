"""ConsumerGroupDescribe, and what the other APIs say of such a group."""

from __future__ import annotations

from pathlib import Path

from protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from protocol.wire.error_codes import ErrorCode
from tests.harness.consumer_requests import beat, join_request
from tests.harness.group_requests import AT_ONCE, stabilize
from tests.harness.served_broker import ServedBroker, serving_broker

ALL_OPERATIONS = 3_400


async def described(
    served: ServedBroker, *group_ids: str, version: int = 1
) -> ConsumerGroupDescribeResponse:
    request = ConsumerGroupDescribeRequest(group_ids=group_ids, include_authorized_operations=True)
    return await served.call(request, version, ConsumerGroupDescribeResponse)


async def test_a_group_is_described_with_its_members(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, **AT_ONCE) as served:
        topic = await served.create("t", 2)
        await beat(served, join_request(instance_id="i", rack_id="r"))

        (group,) = (await described(served, "group")).groups

    assert (group.error_code, group.group_state) == (ErrorCode.NONE, "Stable")
    assert (group.group_epoch, group.assignment_epoch, group.assignor_name) == (2, 2, "uniform")
    assert group.authorized_operations == ALL_OPERATIONS
    (member,) = group.members
    assert (member.member_id, member.instance_id, member.rack_id) == ("m", "i", "r")
    assert (member.member_epoch, member.member_type) == (2, 1)
    assert member.client_host == "/127.0.0.1"
    assert (member.subscribed_topic_names, member.subscribed_topic_regex) == (("t",), "")
    assert member.assignment == member.target_assignment
    (assigned,) = member.assignment.topic_partitions
    assert (assigned.topic_id, assigned.topic_name, assigned.partitions) == (topic.id, "t", (0, 1))


async def test_what_is_no_such_group_is_an_error(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, **AT_ONCE) as served:
        await stabilize(served, "old")
        groups = (await described(served, "old", "nope", "", version=0)).groups

    assert [(each.error_code, each.error_message) for each in groups] == [
        (ErrorCode.GROUP_ID_NOT_FOUND, "Group old is not a consumer group."),
        (ErrorCode.GROUP_ID_NOT_FOUND, "Group nope not found."),
        (ErrorCode.INVALID_GROUP_ID, None),
    ]


async def test_it_is_none_of_the_classic_groups(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, **AT_ONCE) as served:
        await beat(served, join_request())
        request = DescribeGroupsRequest(groups=("group",))
        (old,) = (await served.call(request, 5, DescribeGroupsResponse)).groups
        (new,) = (await served.call(request, 6, DescribeGroupsResponse)).groups

    assert (old.error_code, old.group_state) == (ErrorCode.NONE, "Dead")
    assert (new.error_code, new.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    assert new.error_message == "Group group is not a classic group."


async def test_groups_are_listed_by_type_and_state(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, **AT_ONCE) as served:
        await beat(served, join_request())
        await stabilize(served, "old")

        async def listed(**filters: tuple[str, ...]) -> list[tuple[str, str, str]]:
            answer = await served.call(ListGroupsRequest(**filters), 5, ListGroupsResponse)
            return [(each.group_id, each.group_state, each.group_type) for each in answer.groups]

        new, old = ("group", "Stable", "consumer"), ("old", "Stable", "classic")
        assert await listed() == [new, old]
        assert await listed(types_filter=("Consumer",)) == [new]
        assert await listed(types_filter=("classic",)) == [old]
        assert await listed(types_filter=("share",)) == []
        assert await listed(states_filter=("Reconciling",)) == []
