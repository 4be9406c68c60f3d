"""ConsumerGroupHeartbeat: what is asked, in Kafka's words where it is wrong, in both versions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from protocol.wire.error_codes import ErrorCode
from tests.harness.consumer_requests import beat, beat_request, join_request, owned, parts
from tests.harness.group_requests import AT_ONCE
from tests.harness.served_broker import serving_broker


@pytest.mark.parametrize("version", [0, 1])
async def test_a_member_joins_lives_and_leaves(tmp_path: Path, version: int) -> None:
    async with serving_broker(tmp_path, **AT_ONCE) as served:
        topic = await served.create("t", 2)

        joined = await beat(served, join_request(), version)
        assert (joined.error_code, joined.member_id, joined.member_epoch) == (0, "m", 2)
        assert joined.heartbeat_interval_ms == 5_000
        assert parts(joined) == {topic.id: (0, 1)}
        lives = await beat(served, beat_request(2, topic_partitions=owned(topic.id, 0, 1)), version)
        assert (lives.error_code, lives.assignment) == (0, None)
        left = await beat(served, beat_request(-1), version)
        assert (left.error_code, left.member_epoch) == (0, -1)
        gone = await beat(served, beat_request(2), version)
        assert gone.error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert gone.error_message == "Member m is not a member of group group."


async def test_up_to_v0_the_broker_makes_the_member_id(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, **AT_ONCE) as served:
        assert (await beat(served, join_request(member_id=""), 0)).member_id
        refused = await beat(served, join_request(member_id=""), 1)
        assert refused.error_message == "MemberId can't be empty."


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"group_id": ""}, "GroupId can't be empty."),
        ({"instance_id": ""}, "InstanceId can't be empty."),
        ({"rack_id": " "}, "RackId can't be empty."),
        ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ({"topic_partitions": None}, "TopicPartitions must be empty when (re-)joining."),
        (
            {"subscribed_topic_names": None},
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        ),
    ],
)
async def test_a_wrong_join_is_refused(
    tmp_path: Path, fields: dict[str, Any], message: str
) -> None:
    async with serving_broker(tmp_path, **AT_ONCE) as served:
        refused = await beat(served, join_request(**fields))

        assert (refused.error_code, refused.error_message) == (ErrorCode.INVALID_REQUEST, message)
        assert served.broker.groups.groups() == []


@pytest.mark.parametrize(
    ("epoch", "message"),
    [(-3, "MemberEpoch is invalid."), (-2, "InstanceId can't be null.")],
)
async def test_a_wrong_epoch_is_refused(tmp_path: Path, epoch: int, message: str) -> None:
    async with serving_broker(tmp_path, **AT_ONCE) as served:
        refused = await beat(served, beat_request(epoch))

        assert (refused.error_code, refused.error_message) == (ErrorCode.INVALID_REQUEST, message)


async def test_an_assignor_that_is_not_there_is_refused_with_those_that_are(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, group_consumer_assignors="range", **AT_ONCE) as served:
        refused = await beat(served, join_request(server_assignor="uniform"))

        assert refused.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
        assert refused.error_message == (
            "ServerAssignor uniform is not supported. Supported assignors: range."
        )


@pytest.mark.parametrize("epoch", [1, -1])
async def test_a_group_that_is_not_there_has_no_members(tmp_path: Path, epoch: int) -> None:
    async with serving_broker(tmp_path, **AT_ONCE) as served:
        refused = await beat(served, beat_request(epoch))

        assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert refused.error_message == "Group group not found."
        assert served.broker.groups.groups() == []


async def test_a_subscription_that_fits_into_no_record_is_refused_before_it_is_made(
    tmp_path: Path,
) -> None:
    names = tuple(f"{number:0200}" for number in range(6_000))
    async with serving_broker(tmp_path, **AT_ONCE) as served:
        refused = await beat(served, join_request(subscribed_topic_names=names))

        assert refused.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert refused.error_message == (
            "The names of the subscribed topics do not fit into one record: subscribe to fewer."
        )
        assert served.broker.groups.groups() == []
