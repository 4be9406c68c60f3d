"""FindCoordinator: every key is answered; a consumer that only assigns is left in peace."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.wire.error_codes import ErrorCode
from tests.harness.served_broker import batch_of, serving_broker


@pytest.mark.parametrize(("version", "key_type"), [(0, 0), (1, 0), (1, 1), (2, 1), (3, 0), (3, 1)])
async def test_this_broker_is_the_coordinator_of_everything(
    tmp_path: Path, version: int, key_type: int
) -> None:
    async with serving_broker(tmp_path) as served:
        request = FindCoordinatorRequest(key="group", key_type=key_type)
        response = await served.call(request, version, FindCoordinatorResponse)
        assert response.error_code == ErrorCode.NONE
        assert response.node_id == served.broker.node.node_id
        assert (response.host, response.port) == served.broker.addresses["PLAINTEXT"]


@pytest.mark.parametrize("version", range(4, 7))
@pytest.mark.parametrize(
    ("key_type", "code"),
    [(0, ErrorCode.NONE), (1, ErrorCode.NONE), (2, ErrorCode.INVALID_REQUEST)],
    ids=["group", "transaction", "share_group"],
)
async def test_every_key_is_answered(
    tmp_path: Path, version: int, key_type: int, code: ErrorCode
) -> None:
    async with serving_broker(tmp_path) as served:
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=("a", "b"))
        response = await served.call(request, version, FindCoordinatorResponse)
    assert [coordinator.key for coordinator in response.coordinators] == ["a", "b"]
    for coordinator in response.coordinators:
        assert coordinator.error_code == code
        assert not code.retriable
        assert bool(coordinator.error_message) == bool(code)


def consume(
    address: tuple[str, int], *, subscribe: bool, seconds: float, records: int = 1 << 30
) -> tuple[int, list[str]]:
    """Records read, until so many are, and errors reported to the application, with
    confluent-kafka's defaults."""
    consumer = Consumer(
        {
            "bootstrap.servers": f"{address[0]}:{address[1]}",
            "group.id": "group",
            "auto.offset.reset": "earliest",
        }
    )
    if subscribe:
        consumer.subscribe(["orders"])
    else:
        consumer.assign([TopicPartition("orders", 0, 0)])
    errors: list[str] = []
    count, end_s = 0, time.monotonic() + seconds
    while time.monotonic() < end_s and not errors and count < records:
        message = consumer.poll(0.1)
        if message is not None and message.error():
            errors.append(str(message.error()))
        elif message is not None:
            count += 1
    consumer.close()
    return count, errors


async def test_librdkafka_reads_with_assign_undisturbed_and_closes_at_once(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        await served.produce("orders", batch_of(10))
        address = served.broker.addresses["PLAINTEXT"]
        start_s = time.monotonic()
        read = await asyncio.to_thread(consume, address, subscribe=False, seconds=2)
        assert read == (10, [])
        assert time.monotonic() - start_s < 10


async def test_librdkafka_reads_with_subscribe(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, group_initial_rebalance_delay_ms="0") as served:
        await served.create("orders")
        await served.produce("orders", batch_of(10))
        address = served.broker.addresses["PLAINTEXT"]
        read = await asyncio.to_thread(consume, address, subscribe=True, seconds=10, records=10)
        assert read == (10, [])
        offsets = served.broker.offsets.fetch("group")
        assert not isinstance(offsets, ErrorCode)
        committed = offsets.get("orders", 0)
        assert committed is not None
        assert committed.offset == 10
