"""Metadata: brokers, topics by name, by id or all, and creation on demand."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from protocol.messages.metadata import (
    OPERATIONS_NOT_ASKED,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from protocol.wire.error_codes import ErrorCode
from protocol.wire.primitives import ZERO_UUID
from server.runtime.turns import Pace
from tests.harness.served_broker import ServedBroker, serving_broker


async def ask(
    served: ServedBroker, *names: str, version: int = 12, allow: bool = True
) -> list[MetadataResponseTopic]:
    request = MetadataRequest(
        topics=tuple(MetadataRequestTopic(name=name) for name in names),
        allow_auto_topic_creation=allow,
    )
    return list((await served.call(request, version, MetadataResponse)).topics)


@pytest.mark.parametrize("version", range(14))
async def test_a_topic_is_described_in_every_version(tmp_path: Path, version: int) -> None:
    async with serving_broker(tmp_path) as served:
        topic = await served.create("orders", partitions=3)
        node = served.broker.node
        request = MetadataRequest(topics=(MetadataRequestTopic(name="orders"),))
        response = await served.call(request, version, MetadataResponse)
        epoch = served.log("orders").leader_epoch

        (broker,) = response.brokers
        assert (broker.host, broker.port) == served.broker.addresses["PLAINTEXT"]
        assert broker.node_id == node.node_id
        assert response.cluster_id == (node.cluster_id if version >= 2 else None)
        assert response.controller_id == (node.node_id if version >= 1 else -1)
        (described,) = response.topics
        assert (described.error_code, described.name) == (ErrorCode.NONE, "orders")
        assert described.topic_id == (topic.id if version >= 10 else ZERO_UUID)
        assert described.topic_authorized_operations == OPERATIONS_NOT_ASKED
        for index, partition in enumerate(described.partitions):
            assert partition.partition_index == index
            assert partition.leader_id == node.node_id
            assert partition.replica_nodes == partition.isr_nodes == (node.node_id,)
            assert partition.leader_epoch == (epoch if version >= 7 else -1)


@pytest.mark.parametrize("version", range(14))
async def test_null_means_all_topics_and_empty_means_none_but_in_v0(
    tmp_path: Path, version: int
) -> None:
    async with serving_broker(tmp_path) as served:
        for name in ("orders", "users"):
            await served.create(name)
        empty = await served.call(MetadataRequest(topics=()), version, MetadataResponse)
        assert [t.name for t in empty.topics] == ([] if version else ["orders", "users"])
        assert len(empty.brokers) == 1
        if version:
            every = await served.call(MetadataRequest(topics=None), version, MetadataResponse)
            assert [topic.name for topic in every.topics] == ["orders", "users"]


async def test_a_topic_is_created_when_it_is_first_asked_for(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, num_partitions="4") as served:
        (created,) = await ask(served, "orders")
        assert created.error_code == ErrorCode.NONE
        assert len(created.partitions) == 4
        (again,) = await ask(served, "orders")
        assert again == created


@pytest.mark.parametrize(
    ("enabled", "allowed"), [("false", True), ("true", False)], ids=["broker", "client"]
)
async def test_no_topic_is_created_unless_broker_and_client_allow_it(
    tmp_path: Path, enabled: str, allowed: bool
) -> None:
    async with serving_broker(tmp_path, auto_create_topics_enable=enabled) as served:
        (unknown,) = await ask(served, "orders", allow=allowed)
        assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert len(served.broker.topics) == 0


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a" * 250, "ä"])
async def test_no_topic_of_an_invalid_name_is_created(tmp_path: Path, name: str) -> None:
    async with serving_broker(tmp_path) as served:
        (invalid,) = await ask(served, name)
        assert (invalid.error_code, invalid.name) == (ErrorCode.INVALID_TOPIC_EXCEPTION, name)
        assert len(served.broker.topics) == 0


async def test_a_topic_asked_for_twice_is_described_once(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        assert [topic.name for topic in await ask(served, "b", "a", "b")] == ["b", "a"]


async def test_topics_can_be_asked_for_by_id_since_v12(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        topic = await served.create("orders")
        unknown_id = uuid.uuid4()
        request = MetadataRequest(
            topics=tuple(
                MetadataRequestTopic(topic_id=each, name=None) for each in (topic.id, unknown_id)
            )
        )
        known, unknown = (await served.call(request, 12, MetadataResponse)).topics
        assert (known.error_code, known.name) == (ErrorCode.NONE, "orders")
        assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_ID
        assert (unknown.name, unknown.topic_id) == (None, unknown_id)
        for topic_ in (await served.call(request, 11, MetadataResponse)).topics:
            assert topic_.error_code == ErrorCode.INVALID_REQUEST


async def test_who_asks_what_it_may_do_may_do_everything(tmp_path: Path) -> None:
    """Kafka's own numbers, without an authorizer."""
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        request = MetadataRequest(
            topics=None,
            include_cluster_authorized_operations=True,
            include_topic_authorized_operations=True,
        )
        response = await served.call(request, 10, MetadataResponse)
    assert response.cluster_authorized_operations == 8096
    assert [topic.topic_authorized_operations for topic in response.topics] == [3576]


async def test_a_client_is_told_the_address_of_the_listener_it_came_by(tmp_path: Path) -> None:
    async with serving_broker(
        tmp_path,
        listeners="PLAINTEXT://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
        advertised_listeners="PLAINTEXT://127.0.0.1:0,OUTSIDE://localhost:0",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,OUTSIDE:PLAINTEXT",
    ) as served:
        for name in ("PLAINTEXT", "OUTSIDE"):
            client = await served.connect(name)
            response = await client.call(MetadataRequest(topics=()), 12, MetadataResponse)
            (broker,) = response.brokers
            assert (broker.host, broker.port) == served.broker.addresses[name]


async def test_a_partition_whose_log_is_offline_has_no_leader(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders", partitions=2)
        served.log("orders", 1).go_offline("the disk failed")
        (topic,) = await ask(served, "orders")
        sound, offline = topic.partitions
        node_id = served.broker.node.node_id
    assert (sound.error_code, sound.leader_id) == (ErrorCode.NONE, node_id)
    assert (offline.error_code, offline.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert offline.offline_replicas == (node_id,)


async def test_describing_very_many_partitions_gives_others_their_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before each topic and each partition, once a slice is over."""
    rests = 0

    async def rest(self: Pace) -> None:
        nonlocal rests
        rests += 1

    monkeypatch.setattr(Pace, "is_over", property(lambda self: True))
    monkeypatch.setattr(Pace, "rest", rest)
    async with serving_broker(tmp_path) as served:
        for number in range(6):
            await served.create(f"topic-{number}", partitions=2)
        every = await served.call(MetadataRequest(topics=None), 12, MetadataResponse)

    assert [topic.name for topic in every.topics] == [f"topic-{number}" for number in range(6)]
    assert rests >= 6 + 6 * 2
