"""Requests of a member of the consumer protocol, over the wire."""

from __future__ import annotations

import uuid
from typing import Any

from protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tests.harness.served_broker import ServedBroker

VERSION = 1


def join_request(
    group_id: str = "group", member_id: str = "m", **fields: Any
) -> ConsumerGroupHeartbeatRequest:
    """Returns the request of a member that subscribes to `t`; `fields` are the request's."""
    settings: dict[str, Any] = {
        "rebalance_timeout_ms": 10_000,
        "subscribed_topic_names": ("t",),
        "topic_partitions": (),
    }
    return ConsumerGroupHeartbeatRequest(
        group_id=group_id, member_id=member_id, member_epoch=0, **settings | fields
    )


async def beat(
    served: ServedBroker, request: ConsumerGroupHeartbeatRequest, version: int = VERSION
) -> ConsumerGroupHeartbeatResponse:
    return await served.call(request, version, ConsumerGroupHeartbeatResponse)


def beat_request(
    member_epoch: int, group_id: str = "group", member_id: str = "m", **fields: Any
) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id=group_id, member_id=member_id, member_epoch=member_epoch, **fields
    )


def parts(response: ConsumerGroupHeartbeatResponse) -> dict[uuid.UUID, tuple[int, ...]]:
    assert response.assignment is not None
    return {each.topic_id: each.partitions for each in response.assignment.topic_partitions}


def owned(topic_id: uuid.UUID, *partitions: int) -> tuple[TopicPartitions, ...]:
    return (TopicPartitions(topic_id=topic_id, partitions=partitions),)
