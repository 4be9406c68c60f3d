"""Topics by their ids (KIP-516). What is expected is what Apache Kafka 4.3.1 answered to the same
requests, except where a docstring says otherwise.

`UNKNOWN` is an id that no topic has; `ZERO_UUID` is what a request without an id has in its place.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from protocol.messages.produce import ProduceRequest, ProduceResponse
from protocol.wire.api_keys import APIS, ApiKey
from protocol.wire.error_codes import ErrorCode
from protocol.wire.primitives import ZERO_UUID
from protocol.wire.schema import Message
from server.handlers.shared.joining import Refusals
from tests.harness.plain_requests import switch_off
from tests.harness.raw_client import RawClient
from tests.harness.served_broker import (
    ServedBroker,
    batch_of,
    fetch_request,
    only_fetched,
    only_produced,
    produce_request,
    records_in,
    serving_broker,
)

UNKNOWN = uuid.UUID(int=12345)
LONG_MS = 30_000
FETCH_VERSIONS = range(13, 19)


def asked(topic_id: uuid.UUID, *partitions: int) -> FetchTopic:
    return FetchTopic(
        topic_id=topic_id,
        partitions=tuple(
            FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=1 << 20)
            for partition in partitions
        ),
    )


def fetch(*topics: FetchTopic, **settings: Any) -> FetchRequest:
    fields: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 1}
    return FetchRequest(**fields | settings, topics=topics)


def codes(response: FetchResponse) -> dict[uuid.UUID, list[tuple[int, ErrorCode]]]:
    """What each partition is answered, by the topic's id."""
    return {
        topic.topic_id: [(p.partition_index, ErrorCode(p.error_code)) for p in topic.partitions]
        for topic in response.responses
    }


async def delete(served: ServedBroker, topic_id: uuid.UUID) -> None:
    request = DeleteTopicsRequest(
        topics=(DeleteTopicState(name=None, topic_id=topic_id),), timeout_ms=1000
    )
    answer = await served.call(request, 6, DeleteTopicsResponse)
    assert answer.responses[0].error_code == ErrorCode.NONE


# What an id that no topic has gets from each API that is asked by ids.


def of_metadata(response: Any) -> int:
    return int(response.topics[0].error_code)


def of_deletion(response: Any) -> int:
    return int(response.responses[0].error_code)


def of_commit(response: Any) -> int:
    return int(response.topics[0].partitions[0].error_code)


def of_offset_fetch(response: Any) -> int:
    return int(response.groups[0].topics[0].partitions[0].error_code)


def of_fetch(response: Any) -> int:
    return int(response.responses[0].partitions[0].error_code)


def of_produce(response: Any) -> int:
    return int(response.responses[0].partition_responses[0].error_code)


def metadata_of(topic_id: uuid.UUID) -> Message:
    return MetadataRequest(topics=(MetadataRequestTopic(name=None, topic_id=topic_id),))


def deletion_of(topic_id: uuid.UUID) -> Message:
    topics = (DeleteTopicState(name=None, topic_id=topic_id),)
    return DeleteTopicsRequest(topics=topics, timeout_ms=1000)


def commit_of(topic_id: uuid.UUID) -> Message:
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=5, committed_metadata=""
    )
    topic = OffsetCommitRequestTopic(topic_id=topic_id, partitions=(partition,))
    return OffsetCommitRequest(group_id="readers", topics=(topic,))


def offset_fetch_of(topic_id: uuid.UUID) -> Message:
    topic = OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=(0,))
    return OffsetFetchRequest(
        groups=(OffsetFetchRequestGroup(group_id="readers", topics=(topic,)),)
    )


def fetch_of(topic_id: uuid.UUID) -> Message:
    return fetch(asked(topic_id, 0))


def produce_of(topic_id: uuid.UUID) -> Message:
    return produce_request("", batch_of(1), topic_id=topic_id)


BY_ID: dict[
    ApiKey, tuple[int, Callable[[uuid.UUID], Message], type[Message], Callable[[Any], int]]
] = {
    ApiKey.PRODUCE: (13, produce_of, ProduceResponse, of_produce),
    ApiKey.FETCH: (13, fetch_of, FetchResponse, of_fetch),
    ApiKey.METADATA: (12, metadata_of, MetadataResponse, of_metadata),
    ApiKey.OFFSET_COMMIT: (10, commit_of, OffsetCommitResponse, of_commit),
    ApiKey.OFFSET_FETCH: (10, offset_fetch_of, OffsetFetchResponse, of_offset_fetch),
    ApiKey.DELETE_TOPICS: (6, deletion_of, DeleteTopicsResponse, of_deletion),
}
"""APIs that are asked by ids: since which version, the request, its response, the code in that."""


@pytest.mark.parametrize(
    ("key", "version"),
    [
        pytest.param(key, version, id=f"{key.name}_v{version}")
        for key, (since, *_) in BY_ID.items()
        for version in range(since, APIS[key].version_max + 1)
    ],
)
async def test_an_id_that_no_topic_has_is_an_unknown_topic_id_in_every_api_and_version(
    tmp_path: Path, key: ApiKey, version: int
) -> None:
    _, request_of, response_type, code_in = BY_ID[key]
    async with serving_broker(tmp_path) as served:
        await served.broker.groups.topic.ensure()
        response = await settled(served, request_of(UNKNOWN), version, response_type, code_in)
    assert code_in(response) == ErrorCode.UNKNOWN_TOPIC_ID


async def settled(
    served: ServedBroker,
    request: Message,
    version: int,
    response_type: type[Message],
    code_in: Callable[[Any], int],
) -> Any:
    """The answer once the group coordinator has loaded its partition."""
    async with asyncio.timeout(30):
        while True:
            response = await served.call(request, version, response_type)
            groups = getattr(response, "groups", ())
            code = groups[0].error_code if groups else 0
            if code == 0 and code_in(response) != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                return response


# Fetch.


@pytest.mark.parametrize("version", FETCH_VERSIONS)
async def test_an_unknown_id_fails_its_own_partitions_only(tmp_path: Path, version: int) -> None:
    async with serving_broker(tmp_path) as served:
        topic = await served.create("orders", partitions=2)
        await served.produce("orders")
        request = fetch(asked(topic.id, 0), asked(UNKNOWN, 0, 5), asked(topic.id, 1, 7))
        response = await served.call(request, version, FetchResponse)
    assert response.error_code == ErrorCode.NONE
    unknown = ErrorCode.UNKNOWN_TOPIC_ID
    assert codes(response) == {
        topic.id: [
            (0, ErrorCode.NONE),
            (1, ErrorCode.NONE),
            (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ],
        UNKNOWN: [(0, unknown), (5, unknown)],
    }
    refused = response.responses[1].partitions[0]
    assert (refused.high_watermark, refused.last_stable_offset, refused.log_start_offset) == (
        -1,
        -1,
        -1,
    )
    assert refused.aborted_transactions == ()
    assert refused.records == b""
    assert response.node_endpoints == ()


@pytest.mark.parametrize("version", FETCH_VERSIONS)
async def test_the_id_of_a_topic_that_was_made_anew_is_unknown_and_the_new_one_is_served(
    tmp_path: Path, version: int
) -> None:
    async with serving_broker(tmp_path) as served:
        before = await served.create("orders")
        await delete(served, before.id)
        after = await served.create("orders")
        response = await served.call(
            fetch(asked(before.id, 0), asked(after.id, 0)), version, FetchResponse
        )
    assert codes(response) == {
        before.id: [(0, ErrorCode.UNKNOWN_TOPIC_ID)],
        after.id: [(0, ErrorCode.NONE)],
    }


async def test_a_parked_fetch_by_id_whose_topic_is_deleted_is_answered_as_one_by_name(
    tmp_path: Path,
) -> None:
    async with serving_broker(tmp_path) as served:
        topic = await served.create("orders")
        client = await served.connect()
        number = client.send(fetch(asked(topic.id, 0), max_wait_ms=LONG_MS), 17)
        await until_parked(served)
        await delete(served, topic.id)
        response = await client.receive(FetchResponse, 17, number)
    assert codes(response) == {topic.id: [(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]}


async def test_a_topic_that_is_made_anew_while_a_request_is_carried_out_is_an_inconsistent_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka answers so if the name that it found for the id already belongs to another topic."""
    async with serving_broker(tmp_path) as served:
        topic = await served.create("orders", partitions=2)
        await served.create("others")
        other = served.broker.topics.get("others")
        monkeypatch.setattr(type(served.broker.topics), "get", lambda self, name: other)
        # It looks the id up in the same turn in which it appends.
        switch_off(monkeypatch)
        response = await served.call(fetch(asked(topic.id, 0)), 17, FetchResponse)
        produced = await served.call(
            produce_request("", batch_of(1), topic_id=topic.id), 13, ProduceResponse
        )
    assert codes(response) == {topic.id: [(0, ErrorCode.INCONSISTENT_TOPIC_ID)]}
    assert only_produced(produced).error_code == ErrorCode.INCONSISTENT_TOPIC_ID


async def until_parked(served: ServedBroker) -> None:
    async with asyncio.timeout(30):
        while served.broker.fetch_waiters.parked_count == 0:  # noqa: ASYNC110
            await asyncio.sleep(0.002)


# Produce.


@pytest.mark.parametrize(
    ("topic_id", "partition", "code"),
    [
        pytest.param(UNKNOWN, 0, ErrorCode.UNKNOWN_TOPIC_ID, id="unknown"),
        pytest.param(ZERO_UUID, 0, ErrorCode.UNKNOWN_TOPIC_ID, id="zero"),
        pytest.param(None, 9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, id="no_such_partition"),
    ],
)
async def test_a_batch_for_an_id_that_is_not_there_is_refused(
    tmp_path: Path, topic_id: uuid.UUID | None, partition: int, code: ErrorCode
) -> None:
    async with serving_broker(tmp_path) as served:
        topic = await served.create("orders")
        named = topic.id if topic_id is None else topic_id
        request = produce_request("", batch_of(1), partition, named)
        response = await served.call(request, 13, ProduceResponse)
    assert [answer.topic_id for answer in response.responses] == [named]
    answer = only_produced(response)
    assert (answer.error_code, answer.base_offset, answer.log_start_offset) == (code, -1, -1)
    assert answer.record_errors == ()


async def test_a_batch_without_acks_for_an_unknown_id_closes_the_connection(
    tmp_path: Path,
) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        client = await served.connect()
        client.send(produce_request("", batch_of(1), topic_id=UNKNOWN, acks=0), 13)
        assert await client.is_closed()


async def test_the_id_of_a_topic_that_was_made_anew_takes_no_batch(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        before = await served.create("orders")
        await delete(served, before.id)
        await served.create("orders")
        request = produce_request("", batch_of(1), topic_id=before.id)
        answer = only_produced(await served.call(request, 13, ProduceResponse))
        assert served.log("orders").log_end_offset == 0
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_what_is_produced_by_id_is_fetched_by_id_and_by_name(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        topic = await served.create("orders")
        request = produce_request("", batch_of(3), topic_id=topic.id)
        produced = await served.call(request, 13, ProduceResponse)
        assert produced.responses[0].topic_id == topic.id
        by_id = fetch_request([("", 0, 0)], topic_id=topic.id)
        by_name = fetch_request([("orders", 0, 0)])
        for fetched, version in ((by_id, 18), (by_name, 12)):
            data = only_fetched(await served.call(fetched, version, FetchResponse))
            assert [record.offset for record in records_in(data)] == [0, 1, 2]


async def test_a_transaction_is_joined_by_the_names_of_the_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    joined: list[str] = []

    async def join(_: str, request: ProduceRequest, context: object) -> Refusals:
        joined.extend(topic.name for topic in request.topic_data)
        return {}

    monkeypatch.setattr("server.handlers.produce.join_transaction", join)
    async with serving_broker(tmp_path) as served:
        topic = await served.create("orders")
        for topic_id in (topic.id, UNKNOWN):
            request = produce_request(
                "", batch_of(1), topic_id=topic_id, transactional_id="billing"
            )
            async with await RawClient.connect(*served.broker.addresses["PLAINTEXT"]) as client:
                await client.call(request, 13, ProduceResponse)
    assert joined == ["orders", ""]
