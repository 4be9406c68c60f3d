"""DescribeTopicPartitions: topics in the order of their names, as much as the client wants at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from protocol.wire.error_codes import ErrorCode
from protocol.wire.primitives import ZERO_UUID
from tests.harness.served_broker import ServedBroker, serving_broker

Described = list[tuple[str | None, list[int]]]


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[ServedBroker]:
    """With the topics a, b, c of 3, 1 and 2 partitions."""
    async with serving_broker(tmp_path) as serving:
        for name, partitions in (("c", 2), ("a", 3), ("b", 1)):
            await serving.create(name, partitions=partitions)
        yield serving


async def ask(
    served: ServedBroker,
    *names: str,
    limit: int = 2000,
    cursor: tuple[str, int] | None = None,
) -> DescribeTopicPartitionsResponse:
    request = DescribeTopicPartitionsRequest(
        topics=tuple(TopicRequest(name=name) for name in names),
        response_partition_limit=limit,
        cursor=cursor and Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    return await served.call(request, 0, DescribeTopicPartitionsResponse)


def described(response: DescribeTopicPartitionsResponse) -> Described:
    return [
        (topic.name, [p.partition_index for p in topic.partitions]) for topic in response.topics
    ]


async def test_no_topics_stands_for_all_of_them(served: ServedBroker) -> None:
    response = await ask(served)
    assert described(response) == [("a", [0, 1, 2]), ("b", [0]), ("c", [0, 1])]
    assert response.next_cursor is None
    known = served.broker.topics.get("a")
    assert known is not None
    assert (response.topics[0].topic_id, response.topics[0].is_internal) == (known.id, False)
    assert response.topics[0].topic_authorized_operations == 3576


async def test_the_java_client_gets_lists_and_no_nulls(served: ServedBroker) -> None:
    """A null ends its describeTopics with a NullPointerException."""
    (topic,) = (await ask(served, "b")).topics
    (partition,) = topic.partitions
    node_id = served.broker.node.node_id
    assert (partition.eligible_leader_replicas, partition.last_known_elr) == ((), ())
    assert (partition.leader_id, partition.leader_epoch) == (node_id, served.log("b").leader_epoch)
    assert partition.replica_nodes == partition.isr_nodes == (node_id,)
    assert partition.offline_replicas == ()


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 6, 7, 0, -1])
async def test_page_by_page_everything_is_described_once(served: ServedBroker, limit: int) -> None:
    seen: list[tuple[str | None, int]] = []
    cursor: tuple[str, int] | None = None
    while True:
        response = await ask(served, limit=limit, cursor=cursor)
        page = [(name, number) for name, numbers in described(response) for number in numbers]
        assert 1 <= len(page) <= max(limit, 1)
        seen += page
        if response.next_cursor is None:
            break
        cursor = (response.next_cursor.topic_name, response.next_cursor.partition_index)
    assert seen == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("c", 0), ("c", 1)]


async def test_a_page_ends_between_topics_too(served: ServedBroker) -> None:
    response = await ask(served, limit=4)
    assert described(response) == [("a", [0, 1, 2]), ("b", [0])]
    assert response.next_cursor == Cursor(topic_name="c", partition_index=0)


async def test_topics_asked_for_are_sorted_and_described_once(served: ServedBroker) -> None:
    response = await ask(served, "c", "nowhere", "a", "c", "a b", "")
    assert [(topic.name, topic.error_code) for topic in response.topics] == [
        ("", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a", ErrorCode.NONE),
        ("a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("c", ErrorCode.NONE),
        ("nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert [topic.topic_id for topic in response.topics if topic.error_code] == [ZERO_UUID] * 3


@pytest.mark.parametrize(
    ("cursor", "names"),
    [(("b", 0), ["a", "c"]), (("a", -1), ["a"]), (("z", 0), ["a"])],
    ids=["not_asked_for", "negative", "behind_all"],
)
async def test_a_cursor_must_be_a_partition_of_a_topic_asked_for(
    served: ServedBroker, cursor: tuple[str, int], names: list[str]
) -> None:
    response = await ask(served, *names, cursor=cursor)
    assert [(t.name, t.error_code) for t in response.topics] == [
        (name, ErrorCode.INVALID_REQUEST) for name in names
    ]


async def test_a_topic_deleted_between_two_pages_is_passed_over(served: ServedBroker) -> None:
    assert described(await ask(served, cursor=("aa", 5))) == [("b", [0]), ("c", [0, 1])]
    assert described(await ask(served, "a", "b", cursor=("a", 9))) == [("a", []), ("b", [0])]


async def test_a_partition_whose_log_is_offline_has_no_leader(served: ServedBroker) -> None:
    served.log("c", 1).go_offline("the disk failed")
    (topic,) = (await ask(served, "c")).topics
    sound, offline = topic.partitions
    assert (sound.error_code, sound.leader_id) == (ErrorCode.NONE, served.broker.node.node_id)
    assert (offline.error_code, offline.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
