"""AlterPartitionReassignments: nothing moves on one broker. Codes and messages are Kafka 4.3.1's."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from protocol.wire.error_codes import ErrorCode
from tests.harness.served_broker import ServedBroker, serving_broker

UNCHANGED = (0, None)
BEGINNING = "The manual partition assignment includes"


async def reassign(
    served: ServedBroker,
    name: str,
    *asked: tuple[int, tuple[int, ...] | None],
    version: int = 1,
    may_change_factor: bool = True,
) -> list[tuple[int, str | None]]:
    partitions = tuple(
        ReassignablePartition(partition_index=number, replicas=replicas)
        for number, replicas in asked
    )
    request = AlterPartitionReassignmentsRequest(
        allow_replication_factor_change=may_change_factor,
        topics=(ReassignableTopic(name=name, partitions=partitions),),
    )
    response = await served.call(request, version, AlterPartitionReassignmentsResponse)
    assert response.allow_replication_factor_change is may_change_factor
    assert (response.error_code, response.error_message) == UNCHANGED
    (topic,) = response.responses
    assert topic.name == name
    assert [each.partition_index for each in topic.partitions] == [each for each, _ in asked]
    return [(each.error_code, each.error_message) for each in topic.partitions]


@pytest.mark.parametrize("version", [0, 1])
async def test_what_is_on_this_broker_already_stays_there(tmp_path: Path, version: int) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders", partitions=2)
        asked = [(0, (1,)), (1, (1,)), (0, (1,))]
        assert await reassign(served, "orders", *asked, version=version) == [UNCHANGED] * 3
        asked_without = await reassign(served, "orders", (0, (1,)), may_change_factor=False)
        assert asked_without == [UNCHANGED]
        assert await reassign(served, "orders") == []


@pytest.mark.parametrize(
    ("replicas", "code", "message"),
    [
        pytest.param(None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None, id="cancel"),
        pytest.param(
            (),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{BEGINNING} an empty replica list.",
            id="none",
        ),
        pytest.param(
            (1, 7),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{BEGINNING} broker 7, but no such broker is registered.",
            id="unknown_broker",
        ),
        pytest.param(
            (-1,),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{BEGINNING} broker -1, but no such broker is registered.",
            id="negative_broker",
        ),
        pytest.param(
            (1, 1),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{BEGINNING} the broker 1 more than once.",
            id="twice",
        ),
    ],
)
async def test_other_replicas_are_refused(
    tmp_path: Path, replicas: tuple[int, ...] | None, code: ErrorCode, message: str | None
) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        assert await reassign(served, "orders", (0, replicas)) == [(code, message)]


async def test_what_is_not_there_is_unknown(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        assert await reassign(served, "nowhere", (0, (1,)), (0, None)) == [
            (3, "Unable to find a topic named nowhere."),
            (3, "Unable to find a topic named nowhere."),
        ]
        assert await reassign(served, "orders", (7, (1,)), (-1, None)) == [
            (3, "Unable to find partition orders:7."),
            (3, "Unable to find partition orders:-1."),
        ]
