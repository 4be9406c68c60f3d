"""The answer of every API that can name a topic, for a topic in a snapshot.

The requests are those of `test_internal_topics.py`, which holds them against the table of APIs, so a
new API is asked here too.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.messages.create_topics import CreateTopicsResponse
from protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from protocol.messages.incremental_alter_configs import IncrementalAlterConfigsResponse
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from protocol.messages.offset_fetch import OffsetFetchResponse
from protocol.messages.produce import ProduceResponse
from protocol.wire.api_keys import APIS, ApiKey
from protocol.wire.error_codes import ErrorCode
from server.security.acls import Operation, ResourceType
from server.security.principal import Principal
from server.snapshots.making import Wanted
from server.views import snapshot_topics
from server.views.latest_view import other_id
from server.views.snapshot_topic import SnapshotTopic, snapshot_topic_name
from storage.log.log import PartitionLog
from tests.harness.authorized_broker import allow, authorizing_broker, connect_as, set_acls
from tests.harness.served_broker import ServedBroker, serving_broker
from tests.harness.served_transactions import ServedTransactions
from tests.server.handlers.test_internal_topics import (
    BY_ID,
    REQUESTS,
    VERSIONS,
    answer,
    answer_by_id,
)
from tests.server.handlers.test_latest_views import (
    ANSWERS,
    ANSWERS_BY_ID,
    bytes_in,
    keyed,
    shown,
)

TOPIC = "orders"


async def kept(served: ServedBroker) -> str:
    """Make a snapshot. Returns the name of the topic in it."""
    assert served.broker.snapshots is not None
    made = await served.broker.snapshots.create(Wanted(names=[TOPIC]))
    return snapshot_topic_name(TOPIC, made.id)


async def drop(served: ServedBroker, name: str) -> None:
    assert served.broker.snapshots is not None
    assert await served.broker.snapshots.drop(found(served, name).snapshot_id)


def found(served: ServedBroker, name: str) -> SnapshotTopic:
    topic = served.broker.readable_topics.get(name)
    assert isinstance(topic, SnapshotTopic)
    return topic


async def described(served: ServedBroker, name: str) -> MetadataResponse:
    asked = MetadataRequest(
        topics=(MetadataRequestTopic(name=name),), allow_auto_topic_creation=True
    )
    return await served.call(asked, 12, MetadataResponse)


async def has_offset(served: ServedBroker, name: str) -> bool:
    """Returns whether a group has committed an offset for a topic."""
    version = VERSIONS.get(ApiKey.OFFSET_FETCH, APIS[ApiKey.OFFSET_FETCH].version_max)
    request = REQUESTS[ApiKey.OFFSET_FETCH](name)
    answered = await served.call(request, version, OffsetFetchResponse)
    return "committed_offset=-1" not in repr(answered)


async def test_what_every_api_answers_for_a_topic_in_a_snapshot(tmp_path: Path) -> None:
    """The same as for a view."""
    async with serving_broker(tmp_path) as served:
        await served.create(TOPIC, 2)
        name = await kept(served)
        await described(served, name)

        by_name = {key.name: await answer(served, key, name) for key in sorted(REQUESTS)}
        topic_id = found(served, name).id
        by_id = {key.name: await answer_by_id(served, key, topic_id) for key in BY_ID}

        assert served.log(TOPIC).log_end_offset == 0
        assert served.broker.topics.get(name) is None
    assert by_name == {key.name: code for key, code in ANSWERS.items()}
    assert by_id == {key.name: ANSWERS_BY_ID[key] for key in BY_ID}


@pytest.mark.parametrize(
    ("key", "response_type"),
    [
        (ApiKey.PRODUCE, ProduceResponse),
        (ApiKey.CREATE_TOPICS, CreateTopicsResponse),
        (ApiKey.DELETE_TOPICS, DeleteTopicsResponse),
        (ApiKey.INCREMENTAL_ALTER_CONFIGS, IncrementalAlterConfigsResponse),
    ],
)
async def test_refusals_say_what_it_is(
    tmp_path: Path, key: ApiKey, response_type: type[ProduceResponse]
) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create(TOPIC)
        name = await kept(served)
        version = VERSIONS.get(key, APIS[key].version_max)
        response = await served.call(REQUESTS[key](name), version, response_type)
    assert "is orders as it was in a snapshot: it can only be read." in repr(response)


async def test_what_every_api_answers_for_the_view_of_a_topic_in_a_snapshot(
    tmp_path: Path,
) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create(TOPIC, 2, cleanup_policy="compact")
        name = await kept(served)
        view = name + ".latest"
        await described(served, view)

        by_name = {key.name: await answer(served, key, view) for key in sorted(REQUESTS)}
        topic_id = other_id(found(served, name).id)
        by_id = {key.name: await answer_by_id(served, key, topic_id) for key in BY_ID}

        refused = await served.call(REQUESTS[ApiKey.PRODUCE](view), 11, ProduceResponse)
    assert by_name == {key.name: code for key, code in ANSWERS.items()}
    assert by_id == {key.name: ANSWERS_BY_ID[key] for key in BY_ID}
    assert "has the last values of orders in a snapshot: it can only be read." in repr(refused)


async def test_its_view_has_the_last_values_and_no_tombstones(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create(TOPIC, cleanup_policy="compact")
        await served.produce(TOPIC, keyed((b"a", b"1"), (b"b", b"1"), (b"a", b"2")))
        await served.produce(TOPIC, keyed((b"b", None)))
        name = await kept(served)
        await served.produce(TOPIC, keyed((b"a", b"3")))
        view = name + ".latest"
        (topic,) = (await described(served, view)).topics
        assert [each.error_code for each in topic.partitions] == [ErrorCode.NONE]

        read = await served.fetch(view, 0)
        again = await served.fetch(view, 0)
        rest = await served.fetch(view, 3)
        everything = await served.fetch(name, 0)
    assert shown(read) == shown(again) == [(2, b"a", b"2")]
    assert (shown(rest), bytes_in(rest) != b"") == ([], True)
    assert shown(everything)[-1] == (3, b"b", None)


async def test_a_topic_that_is_not_compacted_has_no_view_in_a_snapshot(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create(TOPIC)
        (topic,) = (await described(served, await kept(served) + ".latest")).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_offsets_committed_for_it_and_its_view_go_with_the_snapshot(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create(TOPIC, cleanup_policy="compact")
        name = await kept(served)
        topics = (name, name + ".latest", TOPIC)
        for each in topics:
            assert await answer(served, ApiKey.OFFSET_COMMIT, each) == "NONE"
        assert [await has_offset(served, each) for each in topics] == [True, True, True]
        await drop(served, name)
        assert [await has_offset(served, each) for each in topics] == [False, False, True]


async def test_it_has_the_records_of_its_moment_whatever_comes_later(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create(TOPIC)
        await served.produce(TOPIC, keyed((b"a", b"1"), (b"b", b"1")))
        name = await kept(served)
        await served.produce(TOPIC, keyed((b"a", b"2")))
        await described(served, name)

        read = await served.fetch(name, 0)
        at_end = await served.fetch(name, 2, max_wait_ms=0)
    assert shown(read) == [(0, b"a", b"1"), (1, b"b", b"1")]
    assert (read.high_watermark, read.last_stable_offset) == (2, 2)
    assert (at_end.error_code, shown(at_end)) == (ErrorCode.NONE, [])


async def test_a_transaction_that_was_open_stays_undecided(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create(TOPIC)
        await served.produce(TOPIC, keyed((b"a", b"1")))
        transactions = ServedTransactions(served, "till", TOPIC)
        await transactions.begin()
        await transactions.send((b"a", b"2"), (b"c", b"1"))
        name = await kept(served)
        await transactions.end(is_commit=True)
        await described(served, name)

        committed = await served.fetch(name, 0, isolation_level=1)
        everything = await served.fetch(name, 0, isolation_level=0)
    assert shown(committed) == [(0, b"a", b"1")]
    assert committed.last_stable_offset == 1
    assert shown(everything) == [(0, b"a", b"1"), (1, b"a", b"2"), (2, b"c", b"1")]


async def test_its_logs_are_opened_when_metadata_are_asked_for(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create(TOPIC)
        await served.produce(TOPIC, keyed((b"a", b"1")))
        name = await kept(served)
        assert not found(served, name).is_open
        assert (await served.fetch(name, 0)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

        (topic,) = (await described(served, name)).topics
        assert [each.error_code for each in topic.partitions] == [ErrorCode.NONE]
        assert shown(await served.fetch(name, 0)) == [(0, b"a", b"1")]


async def test_the_first_one_is_closed_if_too_many_are_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_topics, "OPEN_MAX", 1)
    async with serving_broker(tmp_path) as served:
        await served.create(TOPIC)
        await served.produce(TOPIC, keyed((b"a", b"1")))
        names = [await kept(served), await kept(served)]
        for name in names:
            await described(served, name)

        assert [found(served, name).is_open for name in names] == [False, True]
        assert (await served.fetch(names[0], 0)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        await described(served, names[0])
        assert shown(await served.fetch(names[0], 0)) == [(0, b"a", b"1")]


async def test_a_start_finds_it_again(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create(TOPIC, cleanup_policy="compact")
        await served.produce(TOPIC, keyed((b"a", b"1")))
        name = await kept(served)
        await served.produce(TOPIC, keyed((b"a", b"2")))
    async with serving_broker(tmp_path) as served:
        await described(served, name)
        assert shown(await served.fetch(name, 0)) == [(0, b"a", b"1")]
        assert found(served, name).config.is_compacted


async def test_it_stays_when_its_topic_is_deleted(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create(TOPIC)
        await served.produce(TOPIC, keyed((b"a", b"1")))
        name = await kept(served)
        deletion = DeleteTopicsRequest(topics=(DeleteTopicState(name=TOPIC),), timeout_ms=10_000)
        await served.call(deletion, 6, DeleteTopicsResponse)
        assert served.broker.topics.get(TOPIC) is None
        await described(served, name)
        assert shown(await served.fetch(name, 0)) == [(0, b"a", b"1")]


async def test_once_the_snapshot_is_dropped_it_is_unknown_and_never_created(
    tmp_path: Path,
) -> None:
    async with serving_broker(tmp_path, auto_create_topics_enable="true") as served:
        await served.create(TOPIC)
        await served.produce(TOPIC, keyed((b"a", b"1")))
        name = await kept(served)
        await described(served, name)
        log = found(served, name).partitions[0]
        assert isinstance(log, PartitionLog)
        await drop(served, name)

        (topic,) = (await described(served, name)).topics
        assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (await served.fetch(name, 0)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert log.is_retired
        assert not list((tmp_path / "data").glob("snapshots/*"))


async def test_acls_of_the_topic_decide(tmp_path: Path) -> None:
    async with authorizing_broker(tmp_path) as served:
        await served.create(TOPIC, cleanup_policy="compact")
        name = await kept(served)
        view = name + ".latest"
        may = allow(ResourceType.TOPIC, TOPIC, Operation.DESCRIBE, "User:ada")
        await set_acls(served, [may])
        codes = []
        for user in ("ada", "bob"):
            client = await connect_as(served, Principal("User", user))
            topics = tuple(MetadataRequestTopic(name=each) for each in (name, view))
            answered = await client.call(MetadataRequest(topics=topics), 12, MetadataResponse)
            codes += [each.error_code for each in answered.topics]
    assert codes == [ErrorCode.NONE] * 2 + [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 2
