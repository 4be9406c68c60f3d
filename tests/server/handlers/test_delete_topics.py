"""DeleteTopics: by name, by id, and what is refused."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from protocol.wire.error_codes import ErrorCode
from tests.harness.served_broker import ServedBroker, batch_of, serving_broker


async def delete(served: ServedBroker, *names: str, version: int = 5) -> list[DeletableTopicResult]:
    request = DeleteTopicsRequest(topic_names=names, timeout_ms=1000)
    return list((await served.call(request, version, DeleteTopicsResponse)).responses)


async def delete_v6(served: ServedBroker, *topics: DeleteTopicState) -> list[DeletableTopicResult]:
    request = DeleteTopicsRequest(topics=topics, timeout_ms=1000)
    return list((await served.call(request, 6, DeleteTopicsResponse)).responses)


@pytest.mark.parametrize("version", range(1, 6))
async def test_topics_are_deleted_by_name_each_on_its_own(tmp_path: Path, version: int) -> None:
    async with serving_broker(tmp_path) as served:
        for name in ("orders", "users"):
            await served.create(name)
        results = await delete(served, "orders", "nowhere", version=version)
        assert [(result.name, result.error_code) for result in results] == [
            ("orders", ErrorCode.NONE),
            ("nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        assert [topic.name for topic in served.broker.topics.all()] == ["users"]


async def test_topics_are_deleted_by_id_or_name_since_v6(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        orders, users = await served.create("orders"), await served.create("users")
        results = await delete_v6(
            served,
            DeleteTopicState(topic_id=orders.id),
            DeleteTopicState(name="users"),
            DeleteTopicState(topic_id=uuid.uuid4()),
            DeleteTopicState(),
            DeleteTopicState(name="x", topic_id=users.id),
        )
        assert [result.error_code for result in results] == [
            ErrorCode.NONE,
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_TOPIC_ID,
            ErrorCode.INVALID_REQUEST,
            ErrorCode.INVALID_REQUEST,
        ]
        assert [result.error_message for result in results[3:]] == [
            "Neither topic name nor id were specified.",
            "You may not specify both topic name and topic id.",
        ]
        assert [(result.name, result.topic_id) for result in results[:2]] == [
            ("orders", orders.id),
            ("users", users.id),
        ]
        assert len(served.broker.topics) == 0


async def test_what_every_group_has_committed_is_not_deleted_at_one_word(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("__consumer_offsets")
        (result,) = await delete(served, "__consumer_offsets")
        assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert served.broker.topics.get("__consumer_offsets") is not None


async def test_a_topic_named_twice_is_not_deleted(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        (result,) = await delete(served, "orders", "orders")
        assert result.error_code == ErrorCode.INVALID_REQUEST
        assert len(served.broker.topics) == 1


async def test_nothing_is_deleted_where_deletion_is_disabled(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, delete_topic_enable="false") as served:
        await served.create("orders")
        (result,) = await delete(served, "orders")
        assert result.error_code == ErrorCode.TOPIC_DELETION_DISABLED
        assert result.error_message
        assert len(served.broker.topics) == 1


async def test_a_topic_created_again_has_a_new_id_and_is_empty(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        first = await served.create("orders")
        await served.produce("orders", batch_of(5))
        await delete(served, "orders")
        second = await served.create("orders")
        assert second.id != first.id
        assert (await served.produce("orders", batch_of(1))).base_offset == 0


async def test_a_topic_that_is_named_twice_in_whatever_way_is_refused(tmp_path: Path) -> None:
    """What Kafka 4.3.1 answers to the same requests."""
    async with serving_broker(tmp_path) as served:
        orders = await served.create("orders")
        by_name, by_id = DeleteTopicState(name="orders"), DeleteTopicState(topic_id=orders.id)
        unknown = DeleteTopicState(name="zz"), DeleteTopicState(topic_id=uuid.uuid4())
        for asked, messages in (
            ((by_name, by_name), {"Duplicate topic name."}),
            ((by_id, by_id), {"Duplicate topic id."}),
            ((*unknown, *unknown), {"Duplicate topic name.", "Duplicate topic id."}),
        ):
            results = await delete_v6(served, *asked)
            assert {(r.error_code, r.error_message) for r in results} == {
                (42, message) for message in messages
            }
        results = await delete_v6(served, by_name, DeleteTopicState(name="zz"))
        assert [r.error_code for r in results] == [0, 3]


async def test_a_topic_that_is_named_and_whose_id_is_there_too_is_refused_once(
    tmp_path: Path,
) -> None:
    """What Kafka 4.3.1 answers."""
    async with serving_broker(tmp_path) as served:
        orders = await served.create("orders")
        (named,) = await delete_v6(
            served, DeleteTopicState(name="orders"), DeleteTopicState(topic_id=orders.id)
        )
        text = "The provided topic name maps to an ID that was already supplied."
        assert (named.error_code, named.error_message) == (42, text)
        assert (named.name, named.topic_id) == ("orders", orders.id)
        assert served.broker.topics.get("orders") is orders


@pytest.mark.parametrize("timeout_ms", [0, -1])
async def test_a_deletion_whose_time_is_over_is_not_begun(tmp_path: Path, timeout_ms: int) -> None:
    """What Kafka 4.3.1 answers, without a message."""
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        request = DeleteTopicsRequest(
            topics=(DeleteTopicState(name="orders"),), timeout_ms=timeout_ms
        )
        (result,) = (await served.call(request, 6, DeleteTopicsResponse)).responses
        assert (result.error_code, result.error_message) == (7, None)
        assert served.broker.topics.get("orders") is not None
