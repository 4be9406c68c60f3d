"""Quotas in effect over real sockets: pauses in answers, muted connections, empty fetches, refusals."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from protocol.messages.fetch import FetchResponse
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.messages.produce import ProduceResponse
from protocol.wire.error_codes import ErrorCode
from server.http import broker_facts
from server.net.connection import Connection
from server.runtime.turns import Pace
from server.security.quotas.quota_entity import QuotaEntity
from tests.harness.raw_client import RawClient
from tests.harness.served_broker import (
    ServedBroker,
    batch_of,
    fetch_request,
    only_fetched,
    produce_request,
    serving_broker,
)

ANONYMOUS = QuotaEntity.of([("user", "ANONYMOUS")])
RAW_CLIENT = QuotaEntity.of([("client-id", "raw")])
"""The id that `RawClient` sends."""


async def limit(
    served: ServedBroker, entity: QuotaEntity = ANONYMOUS, **values: float | None
) -> None:
    pace = Pace(served.broker.turns)
    await served.broker.quota_store.alter([(entity, values)], pace)


def connections(served: ServedBroker) -> list[Connection]:
    listeners = served.broker.listening._listeners
    assert listeners is not None
    return list(listeners._shared.connections)


def end_pauses(served: ServedBroker) -> None:
    for connection in connections(served):
        connection._mute.end()


async def ping(client: RawClient) -> ApiVersionsResponse:
    request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
    return await client.call(request, 3, ApiVersionsResponse)


@pytest.mark.parametrize("acks", [1, -1])
async def test_a_produce_beyond_the_quota_succeeds_and_its_connection_pauses(
    tmp_path: Path, acks: int
) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("t")
        await limit(served, producer_byte_rate=1)
        client, other = await served.connect(), await served.connect()
        answer = await client.call(produce_request("t", batch_of(1), acks=acks), 9, ProduceResponse)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        # The request has about 100 bytes: 10 bytes a second over the windows are 9 too many.
        assert 60_000 < answer.throttle_time_ms < 300_000
        assert served.log("t").log_end_offset == 1

        second = client.send(produce_request("t", batch_of(1), acks=acks), 9)
        for _ in range(3):
            assert (await ping(other)).throttle_time_ms == 0
        assert served.log("t").log_end_offset == 1
        end_pauses(served)
        await client.receive(ProduceResponse, 9, second)
        assert served.log("t").log_end_offset == 2


async def test_a_producer_without_acks_pauses_too(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("t")
        await limit(served, producer_byte_rate=1)
        client, other = await served.connect(), await served.connect()
        client.send(produce_request("t", batch_of(1), acks=0), 9)
        correlation_id = client.send(MetadataRequest(topics=()), 1)
        while served.log("t").log_end_offset < 1:
            await ping(other)
        assert [each._mute.is_on for each in connections(served)].count(True) == 1
        end_pauses(served)
        await client.receive(MetadataResponse, 1, correlation_id)


async def test_a_fetch_beyond_the_quota_gets_an_empty_answer(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("t")
        await served.produce("t", batch_of(50))
        request = fetch_request([("t", 0, 0)])
        async with await RawClient.connect(*served.broker.addresses["PLAINTEXT"]) as client:
            full = await client.call(request, 12, FetchResponse)
        size = size_of(full)
        await limit(served, consumer_byte_rate=size // 10 + 1)

        client = await served.connect()
        first = await client.call(request, 12, FetchResponse)
        assert first.throttle_time_ms == 0
        assert only_fetched(first).records == only_fetched(full).records
        second = await client.call(request, 12, FetchResponse)
        assert second.responses == ()
        assert 5_000 < second.throttle_time_ms < 10_500
        assert served.broker.answers.held_bytes == 0

        other = await served.connect()
        third = await other.call(request, 12, FetchResponse)
        assert third.responses == (), "all connections of a client share its quota"
        assert 0 < third.throttle_time_ms <= second.throttle_time_ms


def size_of(response: FetchResponse) -> int:
    records = only_fetched(response).records
    assert isinstance(records, memoryview)
    return records.nbytes


async def test_a_fetch_of_a_batch_that_is_larger_than_the_quota_is_cut_to_whole_batches(
    tmp_path: Path,
) -> None:
    """The first batch is always returned whole, so that a consumer makes progress."""
    async with serving_broker(tmp_path) as served:
        await served.create("t")
        for _ in range(3):
            await served.produce("t", batch_of(10))
        batch_bytes = len(batch_of(10))
        await limit(served, consumer_byte_rate=batch_bytes // 5)
        client = await served.connect()
        answer = await client.call(fetch_request([("t", 0, 0)]), 12, FetchResponse)
        assert answer.throttle_time_ms == 0
        assert size_of(answer) == batch_bytes


async def test_request_time_beyond_the_quota_pauses_for_a_window_at_most(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await limit(served, RAW_CLIENT, request_percentage=0.000001)
        client = await served.connect()
        assert 0 < (await ping(client)).throttle_time_ms <= 1000
        assert [each._mute.is_on for each in connections(served)] == [True]


async def test_a_change_applies_to_open_connections(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        client = await served.connect()
        assert (await ping(client)).throttle_time_ms == 0
        await limit(served, request_percentage=0.000001)
        assert 0 < (await ping(client)).throttle_time_ms <= 1000
        await limit(served, request_percentage=None)
        end_pauses(served)
        assert (await ping(client)).throttle_time_ms == 0


async def test_a_user_without_a_quota_is_not_throttled(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await limit(served, QuotaEntity.of([("user", "alice")]), request_percentage=0.000001)
        client = await served.connect()
        assert (await ping(client)).throttle_time_ms == 0


def create_request(*topics: tuple[str, int]) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=tuple(
            CreatableTopic(
                name=name, num_partitions=count, replication_factor=1, assignments=(), configs=()
            )
            for name, count in topics
        ),
        timeout_ms=10_000,
    )


@pytest.mark.parametrize("version", [5, 6])
async def test_creations_beyond_the_quota_are_refused_or_pause(
    tmp_path: Path, version: int
) -> None:
    async with serving_broker(tmp_path) as served:
        await limit(served, controller_mutation_rate=1)
        client = await served.connect()
        answer = await client.call(
            create_request(("a", 14), ("b", 3), ("bad/name", 1)), version, CreateTopicsResponse
        )
        codes = {each.name: each.error_code for each in answer.topics}
        assert codes["a"] == ErrorCode.NONE
        assert codes["bad/name"] == ErrorCode.INVALID_TOPIC_EXCEPTION
        if version >= 6:
            assert codes["b"] == ErrorCode.THROTTLING_QUOTA_EXCEEDED
            (refused,) = [each for each in answer.topics if each.name == "b"]
            assert refused.error_message == "The throttling quota has been exceeded."
            assert 0 < answer.throttle_time_ms <= 3000
        else:
            assert codes["b"] == ErrorCode.NONE
            assert 0 < answer.throttle_time_ms <= 6000
        assert [each._mute.is_on for each in connections(served)] == [True]


@pytest.mark.parametrize(("version", "is_strict"), [(2, False), (3, True)])
async def test_growth_beyond_the_quota_is_refused_or_pauses(
    tmp_path: Path, version: int, is_strict: bool
) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("t")
        await limit(served, controller_mutation_rate=1)

        async def grow(count: int) -> CreatePartitionsResponse:
            topic = CreatePartitionsTopic(name="t", count=count, assignments=None)
            request = CreatePartitionsRequest(topics=(topic,), timeout_ms=9000, validate_only=False)
            return await served.call(request, version, CreatePartitionsResponse)

        assert (await grow(15)).results[0].error_code == ErrorCode.NONE
        code = (await grow(16)).results[0].error_code
        assert code == (ErrorCode.THROTTLING_QUOTA_EXCEEDED if is_strict else ErrorCode.NONE)


@pytest.mark.parametrize(("version", "is_strict"), [(4, False), (5, True)])
async def test_deletions_beyond_the_quota_are_refused_or_pause(
    tmp_path: Path, version: int, is_strict: bool
) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("a", partitions=14)
        await served.create("b")
        await limit(served, controller_mutation_rate=1)
        request = DeleteTopicsRequest(topic_names=("a", "b"), timeout_ms=9000)
        answer = await served.call(request, version, DeleteTopicsResponse)
        codes = [each.error_code for each in answer.responses]
        second = ErrorCode.THROTTLING_QUOTA_EXCEEDED if is_strict else ErrorCode.NONE
        assert codes == [ErrorCode.NONE, second]
        assert answer.throttle_time_ms > 0


async def test_a_topic_that_is_named_by_id_counts_its_partitions(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        topic = await served.create("a", partitions=14)
        await served.create("b")
        await limit(served, controller_mutation_rate=1)
        states = (
            DeleteTopicState(name=None, topic_id=topic.id),
            DeleteTopicState(name="b"),
        )
        request = DeleteTopicsRequest(topics=states, timeout_ms=9000)
        answer = await served.call(request, 6, DeleteTopicsResponse)
        assert [each.error_code for each in answer.responses] == [
            ErrorCode.NONE,
            ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ]


async def test_what_clients_use_is_in_the_metrics(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("t")
        await limit(served, RAW_CLIENT, producer_byte_rate=1)
        await served.produce("t")
        facts = broker_facts(served.broker).quotas
        assert facts.entities_count == 1
        ((user, client_id, rate),) = facts.uses["producer_byte_rate"]
        assert (user, client_id) == ("", "raw")
        assert 5 < rate < 50
        throttles = served.broker.probe.throttles["producer_byte_rate"]
        assert throttles.count == 1
        assert throttles.seconds > 50
