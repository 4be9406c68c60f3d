"""The answer of every API that can name a topic, for the view of a topic's last values.

The requests are those of `test_internal_topics.py`, which holds them against the table of APIs, so a
new API is asked here too.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from protocol.messages.create_topics import CreateTopicsResponse
from protocol.messages.delete_topics import DeleteTopicsResponse
from protocol.messages.describe_configs import DescribeConfigsResponse
from protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from protocol.messages.incremental_alter_configs import IncrementalAlterConfigsResponse
from protocol.messages.list_offsets import ListOffsetsResponse
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from protocol.messages.offset_fetch import OffsetFetchResponse
from protocol.messages.produce import ProduceResponse
from protocol.records.batch_header import read_header
from protocol.records.control_record import ControlType
from protocol.records.record import Record
from protocol.records.record_batch import build_batch, read_marker, read_records
from protocol.wire.api_keys import APIS, ApiKey
from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Epoch, Offset
from server.lookup.view_reads import filler
from server.security.acls import Operation, ResourceType
from server.security.principal import Principal
from server.topics.names import new_topic_id
from server.views.latest_view import other_id
from tests.harness.authorized_broker import allow, authorizing_broker, connect_as, set_acls
from tests.harness.log_builder import headers_in
from tests.harness.served_broker import (
    NOW_MS,
    ServedBroker,
    batch_of,
    fetch_request,
    only_fetched,
    serving_broker,
)
from tests.harness.served_transactions import ServedTransactions
from tests.server.handlers.test_fetch import until
from tests.server.handlers.test_internal_topics import (
    BY_ID,
    REQUESTS,
    VERSIONS,
    answer,
    answer_by_id,
)

TOPIC, VIEW = "orders", "orders.latest"
NONE, INVALID, UNKNOWN = "NONE", "INVALID_TOPIC_EXCEPTION", "UNKNOWN_TOPIC_OR_PARTITION"

ANSWERS = {
    ApiKey.PRODUCE: INVALID,
    ApiKey.FETCH: NONE,
    ApiKey.LIST_OFFSETS: NONE,
    ApiKey.METADATA: NONE,
    ApiKey.OFFSET_COMMIT: NONE,
    ApiKey.OFFSET_FETCH: NONE,
    ApiKey.CREATE_TOPICS: INVALID,
    ApiKey.DELETE_TOPICS: INVALID,
    ApiKey.DELETE_RECORDS: INVALID,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: NONE,
    ApiKey.ADD_PARTITIONS_TO_TXN: INVALID,
    ApiKey.WRITE_TXN_MARKERS: UNKNOWN,
    ApiKey.TXN_OFFSET_COMMIT: "INVALID_PRODUCER_ID_MAPPING",
    ApiKey.DESCRIBE_CONFIGS: NONE,
    ApiKey.ALTER_CONFIGS: INVALID,
    ApiKey.ALTER_REPLICA_LOG_DIRS: "LOG_DIR_NOT_FOUND",
    ApiKey.DESCRIBE_LOG_DIRS: NONE,
    ApiKey.CREATE_PARTITIONS: INVALID,
    ApiKey.ELECT_LEADERS: UNKNOWN,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: INVALID,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: UNKNOWN,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: NONE,
    ApiKey.OFFSET_DELETE: "GROUP_ID_NOT_FOUND",
    ApiKey.DESCRIBE_QUORUM: UNKNOWN,
    ApiKey.FETCH_SNAPSHOT: UNKNOWN,
    ApiKey.DESCRIBE_PRODUCERS: INVALID,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: NONE,
}
ANSWERS_BY_ID = {
    ApiKey.PRODUCE: INVALID,
    ApiKey.FETCH: NONE,
    ApiKey.METADATA: NONE,
    ApiKey.OFFSET_COMMIT: NONE,
    ApiKey.OFFSET_FETCH: NONE,
    ApiKey.DELETE_TOPICS: "UNKNOWN_TOPIC_ID",
}


async def compacted(served: ServedBroker, partitions: int = 1) -> None:
    await served.create(TOPIC, partitions, cleanup_policy="compact")


def keyed(*pairs: tuple[bytes, bytes | None]) -> bytearray:
    records = [
        Record(offset=number, timestamp=NOW_MS, key=key, value=value)
        for number, (key, value) in enumerate(pairs)
    ]
    return build_batch(records)


def bytes_in(answered: PartitionData) -> bytes:
    assert isinstance(answered.records, bytes | bytearray | memoryview)
    return bytes(answered.records)


def shown(answered: PartitionData) -> list[tuple[int, bytes | None, bytes | None]]:
    """The records that a client shows: not those of control batches."""
    data, at = bytes_in(answered), 0
    found: list[tuple[int, bytes | None, bytes | None]] = []
    for header in headers_in(data):
        if not header.is_control:
            records = read_records(data, at, decompressed_bytes_max=1 << 24)
            found += [(each.offset, each.key, each.value) for each in records]
        at += header.size_bytes
    return found


async def test_what_every_api_answers_for_a_view(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await compacted(served, 2)
        topic, log = served.broker.topics.get(TOPIC), served.log(TOPIC)
        assert topic is not None

        found = {key.name: await answer(served, key, VIEW) for key in sorted(REQUESTS)}
        found_by_id = {
            key.name: await answer_by_id(served, key, other_id(topic.id)) for key in BY_ID
        }

        assert served.broker.topics.get(TOPIC) is topic
        assert served.broker.topics.get(VIEW) is None
        assert log.log_end_offset == 0
    assert found == {key.name: code for key, code in ANSWERS.items()}
    assert {name: found_by_id[name] for name in found_by_id} == {
        key.name: ANSWERS_BY_ID[key] for key in BY_ID
    }


@pytest.mark.parametrize(
    ("key", "response_type"),
    [
        (ApiKey.PRODUCE, ProduceResponse),
        (ApiKey.CREATE_TOPICS, CreateTopicsResponse),
        (ApiKey.DELETE_TOPICS, DeleteTopicsResponse),
        (ApiKey.INCREMENTAL_ALTER_CONFIGS, IncrementalAlterConfigsResponse),
    ],
)
async def test_refusals_say_where_to_write(
    tmp_path: Path, key: ApiKey, response_type: type[ProduceResponse]
) -> None:
    async with serving_broker(tmp_path) as served:
        await compacted(served)
        version = VERSIONS.get(key, APIS[key].version_max)
        response = await served.call(REQUESTS[key](VIEW), version, response_type)
    assert "it can only be read. Write to orders." in repr(response)


@pytest.mark.parametrize("isolation", [0, 1])
async def test_a_fetch_gets_the_last_values_and_is_led_over_the_rest(
    tmp_path: Path, isolation: int
) -> None:
    async with serving_broker(tmp_path) as served:
        await compacted(served)
        await served.produce(TOPIC, keyed((b"a", b"1"), (b"b", b"1")))
        await served.produce(TOPIC, keyed((b"a", b"2")))

        first = await served.fetch(VIEW, 0, isolation_level=isolation)
        assert shown(first) == [(1, b"b", b"1"), (2, b"a", b"2")]
        assert (first.high_watermark, first.last_stable_offset) == (3, 3)
        assert [each.is_control for each in headers_in(bytes_in(first))] == [False, False]

        transactions = ServedTransactions(served, "till", TOPIC)
        await transactions.begin()
        await transactions.send((b"a", b"3"), (b"c", b"1"))
        await transactions.end(is_commit=False)
        tail = await served.fetch(VIEW, 3, isolation_level=isolation)
        (filler,) = headers_in(bytes_in(tail))
        assert shown(tail) == []
        assert (filler.base_offset, filler.last_offset) == (3, 5)
        assert (filler.is_control, filler.is_transactional, filler.producer_id) == (True, False, -1)
        assert not tail.aborted_transactions


async def test_a_fetch_waits_at_the_end_of_a_view_for_the_next_value(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await compacted(served)
        await served.produce(TOPIC, keyed((b"a", b"1")))
        client = await served.connect()
        request = fetch_request([(VIEW, 0, 1)], max_wait_ms=30_000, min_bytes=1)
        waiting = asyncio.create_task(client.call(request, 12, FetchResponse))
        await until(lambda: served.broker.fetch_waiters.parked_count == 1)
        await served.produce(TOPIC, keyed((b"a", b"2")))

        found = only_fetched(await asyncio.wait_for(waiting, 20))
        assert shown(found) == [(1, b"a", b"2")]


async def test_what_nothing_outranks_is_sent_as_it_is_stored(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await compacted(served)
        for number in range(200):
            await served.produce(TOPIC, keyed((b"key-%d" % number, b"1")))
        await served.produce(TOPIC, keyed((b"key-0", b"2")))

        first = await served.fetch(VIEW, 100)
        again = await served.fetch(VIEW, 100)
        plain = await served.fetch(TOPIC, 100)
        assert bytes_in(first) == bytes_in(again) == bytes_in(plain)
        whole = await served.fetch(VIEW, 0)
        assert [offset for offset, *_ in shown(whole)] == list(range(1, 201))
        facts = served.broker.view_reads.facts()
        assert (facts.stored_total, facts.filtered_total) == (1, 2)


async def test_an_offset_beyond_the_log_is_out_of_range(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await compacted(served)
        await served.produce(TOPIC, keyed((b"a", b"1")))

        assert (await served.fetch(VIEW, 2)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        at_end = await served.fetch(VIEW, 1, max_wait_ms=0)
        assert (at_end.error_code, bytes_in(at_end)) == (ErrorCode.NONE, b"")


async def test_a_table_that_does_not_fit_fails_the_fetch(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, key_lookup_bytes_max=str(1 << 20)) as served:
        await compacted(served)
        for start in range(0, 50_000, 5_000):
            pairs = ((b"%d" % number, b"") for number in range(start, start + 5_000))
            await served.produce(TOPIC, keyed(*pairs))

        assert (await served.fetch(VIEW, 0)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR


async def test_a_session_reads_views_beside_topics(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await compacted(served)
        await served.create("plain")
        await served.produce(TOPIC, keyed((b"a", b"1")))
        client = await served.connect()
        topics = tuple(
            FetchTopic(
                topic=name,
                partitions=(
                    FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20),
                ),
            )
            for name in (VIEW, "plain")
        )
        request = FetchRequest(
            max_wait_ms=0, min_bytes=1, session_id=0, session_epoch=0, topics=topics
        )
        opened = await client.call(request, 12, FetchResponse)
        assert opened.session_id
        assert [each.topic for each in opened.responses] == [VIEW, "plain"]
        at_end = FetchTopic(
            topic=VIEW,
            partitions=(FetchPartition(partition=0, fetch_offset=1, partition_max_bytes=1 << 20),),
        )

        async def next_(epoch: int, *asked: FetchTopic) -> FetchResponse:
            request = FetchRequest(
                max_wait_ms=0,
                min_bytes=1,
                session_id=opened.session_id,
                session_epoch=epoch,
                topics=asked,
            )
            return await client.call(request, 12, FetchResponse)

        assert (await next_(1, at_end)).responses == ()
        await served.produce(TOPIC, keyed((b"a", b"2")))
        (found,) = (await next_(2)).responses
        assert found.topic == VIEW
        assert shown(found.partitions[0]) == [(1, b"a", b"2")]


async def test_the_end_of_a_view_is_the_last_stable_offset(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await compacted(served)
        await served.produce(TOPIC, keyed((b"a", b"1")))
        transactions = ServedTransactions(served, "till", TOPIC)
        await transactions.begin()
        await transactions.send((b"a", b"open"))
        log = served.log(TOPIC)
        assert (log.last_stable_offset, log.high_watermark) == (1, 2)

        version = APIS[ApiKey.LIST_OFFSETS].version_max
        response = await served.call(
            REQUESTS[ApiKey.LIST_OFFSETS](VIEW), version, ListOffsetsResponse
        )
        assert response.topics[0].partitions[0].offset == 1
        found = await served.fetch(VIEW, 0)
        assert (found.high_watermark, shown(found)) == (1, [(0, b"a", b"1")])


async def metadata(served: ServedBroker, *names: str) -> dict[str | None, int]:
    topics = tuple(MetadataRequestTopic(name=name) for name in names) or None
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=True)
    response = await served.call(request, 12, MetadataResponse)
    return {each.name: each.error_code for each in response.topics}


async def test_a_view_is_listed_only_if_the_broker_is_told_to(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "a") as served:
        await compacted(served)
        assert await metadata(served) == {TOPIC: 0}
    async with serving_broker(tmp_path / "b", view_list="true") as served:
        await compacted(served)
        await served.create("plain")
        assert await metadata(served) == {TOPIC: 0, VIEW: 0, "plain": 0}


async def test_no_topic_with_a_views_name_is_created_automatically(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        assert await metadata(served, VIEW, TOPIC) == {
            VIEW: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            TOPIC: 0,
        }
        assert served.broker.topics.get(VIEW) is None


async def test_a_topic_hides_a_view_of_its_name(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create(VIEW)
        await compacted(served)
        await served.produce(VIEW, batch_of(1))
        await served.produce(TOPIC, keyed((b"a", b"1"), (b"a", b"2")))

        assert len(shown(await served.fetch(VIEW, 0))) == 1
        assert (await served.fetch(VIEW, 0)).high_watermark == 1
        response = await served.call(
            REQUESTS[ApiKey.DELETE_TOPICS](VIEW),
            APIS[ApiKey.DELETE_TOPICS].version_max,
            DeleteTopicsResponse,
        )
        assert response.responses[0].error_code == ErrorCode.NONE
        assert shown(await served.fetch(VIEW, 0)) == [(1, b"a", b"2")]


@pytest.mark.parametrize("policy", ["delete", ""])
async def test_a_topic_that_is_not_compacted_has_no_view(tmp_path: Path, policy: str) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create(TOPIC, cleanup_policy=policy)
        found = await served.fetch(VIEW, 0)
        assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_another_suffix_and_none_at_all(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "a", view_suffix="-now") as served:
        await compacted(served)
        assert (await served.fetch("orders-now", 0, max_wait_ms=0)).error_code == 0
    async with serving_broker(tmp_path / "b", view_suffix="") as served:
        await compacted(served)
        found = await served.fetch(VIEW, 0)
        assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_the_acls_of_the_topic_decide_about_its_view(tmp_path: Path) -> None:
    reader, other = Principal("User", "reader"), Principal("User", "other")
    async with authorizing_broker(tmp_path) as served:
        await served.create(TOPIC, cleanup_policy="compact")
        await set_acls(served, [allow(ResourceType.TOPIC, TOPIC, Operation.READ, str(reader))])
        for principal, code in (
            (reader, ErrorCode.NONE),
            (other, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ):
            client = await connect_as(served, principal)
            request = fetch_request([(VIEW, 0, 0)], max_wait_ms=0)
            assert only_fetched(await client.call(request, 12, FetchResponse)).error_code == code


async def test_a_deleted_topic_takes_the_offsets_of_its_view_with_it(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await compacted(served)
        assert await answer(served, ApiKey.OFFSET_COMMIT, VIEW) == NONE

        async def committed() -> str:
            version = APIS[ApiKey.OFFSET_FETCH].version_max
            version = VERSIONS.get(ApiKey.OFFSET_FETCH, version)
            response = await served.call(
                REQUESTS[ApiKey.OFFSET_FETCH](VIEW), version, OffsetFetchResponse
            )
            return repr(response)

        before = await committed()
        assert await answer(served, ApiKey.DELETE_TOPICS, TOPIC) == NONE
        assert await committed() != before
        assert "committed_offset=-1" in await committed()


async def test_the_configuration_of_a_view_is_the_topics_and_read_only(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await compacted(served)
        version = APIS[ApiKey.DESCRIBE_CONFIGS].version_max
        response = await served.call(
            REQUESTS[ApiKey.DESCRIBE_CONFIGS](VIEW), version, DescribeConfigsResponse
        )
        rows = {row.name: row for row in response.results[0].configs}
        assert rows["cleanup.policy"].value == "compact"
        assert all(row.read_only for row in rows.values())


def test_a_views_id_is_the_topics_under_a_mask_and_back() -> None:
    topic_id = new_topic_id()
    assert other_id(topic_id) != topic_id
    assert other_id(other_id(topic_id)) == topic_id


def test_a_filler_is_a_marker_that_ends_nothing() -> None:
    batch = filler(Offset(5), Offset(9), Epoch(3))
    header, marker = read_header(batch), read_marker(batch)
    assert (header.base_offset, header.last_offset, header.leader_epoch) == (5, 8, 3)
    assert (header.producer_id, header.record_count) == (-1, 1)
    assert marker is not None
    assert marker.type is ControlType.COMMIT
