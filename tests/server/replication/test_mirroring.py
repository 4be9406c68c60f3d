"""A broker mirrors topics of another one: offsets, gaps, growth, starts, states, promotion."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from protocol.messages.describe_configs import DescribeConfigsResult
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from protocol.records.record_batch import Record
from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Epoch, Offset, ProducerId
from server.client.broker_client import BrokerClient
from server.client.errors import Misconfigured
from server.client.pauses import Pacing
from server.coordination.groups.group_entry import GroupEntry
from server.metadata.features import SPARSE_LOG
from server.metadata.store import Put
from server.replication import link as link_module
from server.replication import mirror as mirror_module
from server.replication import source_topics as source_topics_module
from server.replication.fetch_pace import FetchPace
from server.replication.link_spec import parse_link
from server.replication.mirror_topics import MirrorTopics
from server.replication.replication import LinkRefused, UnknownLink
from server.replication.requests import FetchBounds
from server.replication.slot_content import safe_ms_of
from server.replication.source_topics import find_topics
from server.topics.creation import TopicCreation
from server.topics.topic import Topic, TopicRefused
from storage.batches.batch_run import RUN_BYTES_MAX
from storage.files.paths import START_COUNTER, topic_id_text
from storage.log.appender import Appended
from storage.log.log import PartitionLog
from storage.segment.reader import Isolation
from tests.harness.certificates import Certificates
from tests.harness.log_builder import batch_of, run_of, valid
from tests.harness.log_home import read_all
from tests.harness.served_broker import ServedBroker, serving_broker
from tests.harness.source_topic import SOURCE_ID, source_topic

SECONDS_MAX = 300
LINK = "dr"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at the source often, and retry soon."""
    monkeypatch.setattr(link_module, "REFRESH_SECONDS", 0.1)
    monkeypatch.setattr(link_module, "SLOTS_SECONDS", 0.02)
    often = Pacing(first_s=0.05, max_s=0.1, least_share=1.0, most_share=1.0)
    monkeypatch.setattr(mirror_module, "MIRROR", often)
    monkeypatch.setattr(link_module, "MIRROR", often)


@asynccontextmanager
async def two_brokers(tmp_path: Path) -> AsyncIterator[tuple[ServedBroker, ServedBroker]]:
    """Yields a source, and the broker that mirrors it."""
    async with (
        serving_broker(tmp_path / "source") as source,
        serving_broker(tmp_path / "target") as target,
    ):
        yield source, target


async def link(target: ServedBroker, source: ServedBroker, **settings: Any) -> None:
    """Create a link to `source`; by default it follows the topic `t`."""
    host, port = source.broker.addresses["PLAINTEXT"]
    content = {"bootstrap": f"{host}:{port}", "topics": ["t"], **settings}
    await target.broker.replication.create(parse_link(LINK, json.dumps(content)))


async def until(is_true: Callable[[], bool], what: Callable[[], object] = str) -> None:
    """Wait until something is true."""
    try:
        async with asyncio.timeout(SECONDS_MAX):
            # The other side is a broker in the same loop, whose events a test cannot see.
            while not is_true():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(what()) from None


def status(target: ServedBroker) -> dict[str, Any]:
    shown = target.broker.replication.shown_one(LINK)
    return {**shown, "partitions": list(shown["partitions"])}


def states(target: ServedBroker) -> list[str]:
    return [each["state"] for each in status(target)["partitions"]]


def mirror_log(target: ServedBroker, topic: str = "t", partition: int = 0) -> PartitionLog | None:
    found = target.broker.topics.get(topic)
    if found is None or partition >= len(found.partitions):
        return None
    log = found.partitions[partition]
    assert isinstance(log, PartitionLog)
    return log


async def until_equal(
    source: ServedBroker, target: ServedBroker, topic: str = "t", partition: int = 0
) -> list[Record]:
    """Wait until a mirror's log is as long as its source's, synced; both must have equal records."""
    theirs = source.log(topic, partition)

    def is_equal() -> bool:
        ours = mirror_log(target, topic, partition)
        return (
            ours is not None
            and ours.log_start_offset == theirs.log_start_offset
            and ours.high_watermark == theirs.high_watermark
        )

    await until(is_equal, lambda: status(target))
    ours = mirror_log(target, topic, partition)
    assert ours is not None
    found = read_all(ours)
    assert found == read_all(theirs)
    return found


async def in_state(target: ServedBroker, state: str) -> dict[str, Any]:
    """Wait until the first partition has a state; returns it."""
    await until(lambda: state in states(target)[:1], lambda: status(target))
    found: dict[str, Any] = status(target)["partitions"][0]
    return found


async def create_again(
    source: ServedBroker, target: ServedBroker, cleanup_policy: str = "delete"
) -> None:
    """Delete the source's topic and create it again, while the link does not look: it must not see that
    there is none in between."""
    await target.broker.replication.pause(LINK, is_paused=True)
    topic = source.broker.topics.get("t")
    assert topic is not None
    await source.broker.topics.delete(topic)
    await source.create("t", cleanup_policy=cleanup_policy)
    await target.broker.replication.pause(LINK, is_paused=False)


async def test_a_mirror_has_the_same_records_at_the_same_offsets(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as (source, target):
        await source.create("t", partitions=2)
        for number in range(20):
            await source.produce("t", batch_of([(b"k", b"%d" % number)] * 3), number % 2)
        await link(target, source)
        await until_equal(source, target)
        await source.produce("t", batch_of([(b"late", b"1")]))
        assert (await until_equal(source, target))[-1].key == b"late"
        await until_equal(source, target, partition=1)
        assert states(target) == ["copying", "copying"]


async def test_gaps_of_a_compacted_source_stay_and_the_ends_agree(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as (source, target):
        await source.create("t", cleanup_policy="compact")
        log = source.log("t")
        log.appender.append_as_follower(run_of(batch_of([(b"a", b"1")], base_offset=5)), now_ms=0)
        log.appender.append_as_follower(run_of(batch_of([(b"b", b"2")], base_offset=70)), now_ms=0)
        log.appender.advance_end(Offset(100))
        source.broker.group_commit.appended(log)
        await link(target, source)
        records = await until_equal(source, target)

    assert [each.offset for each in records] == [5, 70]


async def test_the_sources_group_shows_how_far_the_link_is(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as (source, target):
        await source.create("t")
        await source.produce("t", batch_of([(b"k", b"v")] * 7))
        await link(target, source)
        await until_equal(source, target)
        request = OffsetFetchRequest(group_id="__mirror.dr", topics=None)

        async def committed() -> tuple[int, str | None]:
            answer = await source.call(request, 7, OffsetFetchResponse)
            ((found,),) = [each.partitions for each in answer.topics]
            return found.committed_offset, found.metadata

        async with asyncio.timeout(SECONDS_MAX):
            while (slot := await committed())[0] != 7:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert safe_ms_of(slot[1]) is not None
        assert json.loads(slot[1] or "")["state"] == "copying"


async def test_a_restart_continues_where_it_was(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "source") as source:
        await source.create("t")
        await source.produce("t", batch_of([(b"k", b"1")]))
        async with serving_broker(tmp_path / "target") as target:
            await link(target, source)
            await until_equal(source, target)
        await source.produce("t", batch_of([(b"k", b"2")]))
        async with serving_broker(tmp_path / "target") as target:
            assert len(await until_equal(source, target)) == 2
            ours = mirror_log(target)
            assert ours is not None
            assert ours.leader_epoch > ours.epochs.latest


async def test_a_mirror_leads_above_every_epoch_of_its_source(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as (source, target):
        await source.create("t")
        log = source.log("t")
        for epoch, offset in ((3, 0), (90, 1)):
            batch = batch_of([(b"k", b"v")], base_offset=offset, leader_epoch=epoch)
            log.appender.append_as_follower(run_of(batch), now_ms=0)
        source.broker.group_commit.appended(log)
        await link(target, source)
        await until_equal(source, target)
        ours = mirror_log(target)
        assert ours is not None
        assert (ours.epochs.entries, ours.leader_epoch) == (((3, 0), (90, 1)), 91)
    async with serving_broker(tmp_path / "target") as target:
        ours = mirror_log(target)
        assert ours is not None
        assert ours.leader_epoch > 90


async def test_partitions_and_properties_follow_the_source(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as (source, target):
        await source.create("t", cleanup_policy="compact", retention_ms="12345")
        await link(target, source)
        await in_state(target, "copying")
        grown = await source.broker.topics.add_partitions("t", 3)
        assert isinstance(grown, Topic)
        await source.broker.topics.alter("t", lambda old, _: {**old, "segment.ms": "77000"})
        await source.produce("t", batch_of([(b"k", b"v")]), partition=2)
        await until_equal(source, target, partition=2)

        def properties() -> dict[str, str]:
            found = target.broker.topics.get("t")
            return {} if found is None else dict(found.overrides)

        await until(lambda: properties().get("segment.ms") == "77000", properties)
        assert properties()["retention.ms"] == "12345"
        found = target.broker.topics.get("t")
        assert found is not None
        assert not found.config.is_compacted, "until --compaction on"
        assert not found.config.is_deleted, "it follows the source's log start"


async def test_properties_that_clients_set_here_stay_until_they_delete_them(
    tmp_path: Path,
) -> None:
    async with two_brokers(tmp_path) as (source, target):
        await source.create("t", segment_ms="77000", segment_bytes="1048576")
        await link(target, source)
        await in_state(target, "copying")
        await set_on(target, "segment.ms", "60000")
        await set_on(target, "flush.ms", "500")

        async def after_a_refresh(segment_bytes: str) -> dict[str, str]:
            await source.broker.topics.alter(
                "t", lambda old, _: {**old, "segment.bytes": segment_bytes}
            )

            def overrides() -> dict[str, str]:
                found = target.broker.topics.get("t")
                return {} if found is None else dict(found.overrides)

            await until(lambda: overrides()["segment.bytes"] == segment_bytes)
            return overrides()

        overrides = await after_a_refresh("2097152")
        assert (overrides["segment.ms"], overrides["flush.ms"]) == ("60000", "500")
        await set_on(target, "segment.ms", None)
        await set_on(target, "flush.ms", None)
        overrides = await after_a_refresh("4194304")
        assert overrides["segment.ms"] == "77000"
        assert "flush.ms" not in overrides
        assert "mirror.local.properties" not in overrides

        await set_on(target, "segment.ms", "60000")
        await target.broker.replication.promote("t", is_forced=True)
        found = target.broker.topics.get("t")
        assert found is not None
        assert found.overrides["segment.ms"] == "60000"
        assert not any(name.startswith("mirror.") for name in found.overrides)


async def set_on(served: ServedBroker, name: str, value: str | None) -> None:
    """Set a property of the topic `t` as a client; None deletes it."""
    config = AlterableConfig(name=name, config_operation=0 if value else 1, value=value)
    resource = AlterConfigsResource(resource_type=2, resource_name="t", configs=(config,))
    request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
    answer = await served.call(request, 1, IncrementalAlterConfigsResponse)
    assert answer.responses[0].error_code == ErrorCode.NONE, answer


async def test_a_topic_that_the_source_does_not_have_is_said_to_be_missing_there(
    tmp_path: Path,
) -> None:
    async with two_brokers(tmp_path) as (source, target):
        await source.create("t")
        await link(target, source, topics=["t", "nosuch"])
        await in_state(target, "copying")

        assert status(target)["problems"] == {"nosuch": "the source has no topic of this name"}


async def test_resuming_looks_at_the_sources_topics_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "REFRESH_SECONDS", 3600.0)
    async with two_brokers(tmp_path) as (source, target):
        await source.create("t")
        await link(target, source, topics=["t", "later"])
        await in_state(target, "copying")
        await source.create("later")
        await source.produce("later", batch_of([(b"k", b"v")]))

        await target.broker.replication.pause(LINK, is_paused=False)

        assert len(await until_equal(source, target, "later")) == 1


async def test_compaction_can_be_on(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as (source, target):
        await source.create("t", cleanup_policy="compact")
        await link(target, source, compaction="on")
        await in_state(target, "copying")
        found = target.broker.topics.get("t")
        assert found is not None
        assert found.config.is_compacted


async def test_deleted_records_of_the_source_go_here_too(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as (source, target):
        await source.create("t")
        for _ in range(5):
            await source.produce("t", batch_of([(b"k", b"v")]))
        await link(target, source)
        await until_equal(source, target)
        source.log("t").delete_records(Offset(3))
        await source.produce("t", batch_of([(b"k", b"v")]))
        await until_equal(source, target)
        assert status(target)["partitions"][0]["skipped_records"] == 0


async def test_records_deleted_before_they_were_copied_are_counted(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as (source, target):
        await source.create("t")
        for _ in range(5):
            await source.produce("t", batch_of([(b"k", b"v")]))
        source.log("t").delete_records(Offset(4))
        await link(target, source)
        assert len(await until_equal(source, target)) == 1
        assert status(target)["partitions"][0]["skipped_records"] == 4


async def test_producers_are_unknown_after_records_that_were_deleted_before_they_were_copied(
    tmp_path: Path,
) -> None:
    """Their last sequences, and the markers of their transactions, were among these records."""
    async with two_brokers(tmp_path) as (source, target):
        await source.create("t")
        await produce_as(source, 7, [b"1", b"2"])
        await produce_as(source, 8, [b"open"], is_transactional=True)
        await link(target, source)
        await until_equal(source, target)
        await target.broker.replication.pause(LINK, is_paused=True)
        await produce_as(source, 7, [b"3"], sequence=2)
        log = source.log("t")
        log.appender.append_marker(
            ProducerId(8), Epoch(0), is_commit=True, coordinator_epoch=Epoch(0), now_ms=0
        )
        await source.produce("t", batch_of([(b"k", b"v")]))
        log.delete_records(log.log_end_offset)

        await target.broker.replication.pause(LINK, is_paused=False)
        # Counted last: its new offsets show before the whole log has started over.
        await until(lambda: status(target)["partitions"][0]["skipped_records"] == 3)
        await until_equal(source, target)

        mirror = mirror_log(target)
        assert mirror is not None
        assert [*mirror.producers.items()] == []
        assert mirror.last_stable_offset == mirror.log_end_offset
        await source.produce("t", batch_of([(b"k", b"later")]))
        assert [each.value for each in await until_equal(source, target)] == [b"later"]
    async with serving_broker(tmp_path / "target") as target:
        mirror = mirror_log(target)
        assert mirror is not None
        assert [*mirror.producers.items()] == []
        assert mirror.last_stable_offset == mirror.log_end_offset


async def produce_as(
    served: ServedBroker,
    producer_id: int,
    values: Sequence[bytes],
    *,
    sequence: int = 0,
    is_transactional: bool = False,
) -> None:
    """Append a batch of an idempotent producer to the topic `t`."""
    batch = batch_of(
        [(b"k", value) for value in values],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        is_transactional=is_transactional,
    )
    appended = served.log("t").appender.append_as_leader(valid(batch), now_ms=0)
    assert isinstance(appended, Appended), appended
    served.broker.group_commit.appended(served.log("t"))


async def test_a_source_may_start_within_a_batch(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as (source, target):
        await source.create("t")
        await source.produce("t", batch_of([(b"k", b"v")] * 5))
        source.log("t").delete_records(Offset(3))
        await link(target, source)
        assert [each.offset for each in await until_equal(source, target)] == [3, 4]


async def test_records_deleted_in_a_topic_that_is_only_compacted_stop_the_mirror(
    tmp_path: Path,
) -> None:
    async with two_brokers(tmp_path) as (source, target):
        await source.create("t", cleanup_policy="compact")
        for _ in range(5):
            await source.produce("t", batch_of([(b"k", b"v")]))
        source.log("t").delete_records(Offset(4))
        await link(target, source)
        assert "starts at 4" in (await in_state(target, "failed"))["reason"]


async def test_a_topic_that_was_created_again_stops_the_mirror(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as (source, target):
        await source.create("t")
        await source.produce("t", batch_of([(b"k", b"old")]))
        await link(target, source)
        before = await until_equal(source, target)
        await create_again(source, target)
        assert "created again" in (await in_state(target, "failed"))["reason"]
        ours = mirror_log(target)
        assert ours is not None
        assert read_all(ours) == before


async def test_a_topic_that_was_deleted_stops_the_mirror_which_keeps_its_records(
    tmp_path: Path,
) -> None:
    async with two_brokers(tmp_path) as (source, target):
        await source.create("t")
        await source.create("other")
        await source.produce("t", batch_of([(b"k", b"v")]))
        await link(target, source, topics=["t", "other"])
        before = await until_equal(source, target)
        topic = source.broker.topics.get("t")
        assert topic is not None
        await source.broker.topics.delete(topic)

        def found() -> dict[str, Any]:
            rows: list[dict[str, Any]] = status(target)["partitions"]
            return next(each for each in rows if each["topic"] == "t")

        await until(lambda: found()["state"] == "failed", lambda: status(target))
        assert "no longer has t-0" in found()["reason"]
        ours = mirror_log(target)
        assert ours is not None
        assert read_all(ours) == before


async def test_a_link_survives_what_nobody_expects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two_brokers(tmp_path) as (source, target):
        await source.create("t")
        find, calls = find_topics, 0

        async def once_wrong(*arguments: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == 1:
                raise ZeroDivisionError("a mistake")
            return await find(*arguments)

        monkeypatch.setattr(link_module, "find_topics", once_wrong)
        await link(target, source)
        await in_state(target, "copying")
        assert status(target)["reason"] == ""


async def test_a_diverging_mirror_is_cut_and_continues(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as (source, target):
        await source.create("t")
        await source.produce("t", batch_of([(b"k", b"%d" % number) for number in range(3)]))
        await link(target, source)
        await until_equal(source, target)
        await target.broker.replication.pause(LINK, is_paused=True)
        await in_state(target, "paused")
        # A record that the source has never had, as after an unclean election there.
        ours, theirs = mirror_log(target), source.log("t")
        assert ours is not None
        other = batch_of([(b"k", b"lost")], base_offset=3, leader_epoch=theirs.leader_epoch)
        ours.appender.append_as_follower(run_of(other), now_ms=0)
        target.broker.group_commit.appended(ours)
        await target.broker.group_commit.durable(ours, Offset(4))
        generation = ours.generation
        theirs.lead_above(Epoch(theirs.leader_epoch + 5))
        for _ in range(3):
            await source.produce("t", batch_of([(b"k", b"new")]))
        await target.broker.replication.pause(LINK, is_paused=False)
        records = await until_equal(source, target)
        assert b"lost" not in {each.value for each in records}
        assert ours.generation > generation, "a pass that was planned before must lose"
        assert status(target)["partitions"][0]["cut_records"] == 1


async def test_a_source_that_lost_records_stops_the_mirror_which_keeps_them(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as (source, target):
        await source.create("t")
        await source.produce("t", batch_of([(b"k", b"%d" % number) for number in range(3)]))
        await link(target, source)
        before = await until_equal(source, target)
        log = source.log("t")
        await source.broker.executors.administration.run(log.truncate_to, Offset(0))
        found = await in_state(target, "failed")
        assert "source has lost records" in found["reason"] or "knows no epoch" in found["reason"]
        ours = mirror_log(target)
        assert ours is not None
        assert read_all(ours) == before


async def test_a_source_that_cannot_be_reached_is_retried(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "target") as target:
        async with serving_broker(tmp_path / "source") as source:
            await source.create("t")
            await source.produce("t", batch_of([(b"k", b"1")]))
            host, port = source.broker.addresses["PLAINTEXT"]
            await link(target, source)
            await until_equal(source, target)
        await in_state(target, "retrying")
        await until(lambda: "no broker answers" in status(target)["reason"])
        listeners = f"PLAINTEXT://{host}:{port}"
        async with serving_broker(tmp_path / "source", listeners=listeners) as source:
            await source.produce("t", batch_of([(b"k", b"2")]))
            assert len(await until_equal(source, target)) == 2
            await in_state(target, "copying")


async def test_below_the_feature_level_nothing_is_written_until_it_is_raised(
    tmp_path: Path,
) -> None:
    async with two_brokers(tmp_path) as (source, target):
        await source.create("t", cleanup_policy="compact")
        await source.produce("t", batch_of([(b"k", b"v")]))
        await target.broker.features.set_levels({SPARSE_LOG: 0})
        await link(target, source)
        found = await in_state(target, "upgrade-required")
        assert "kompakt features upgrade sparse.log=1" in found["reason"]
        assert found["end"] == 0
        assert found["next_attempt_ms"] is not None
        await target.broker.features.set_levels({SPARSE_LOG: 1})
        await until_equal(source, target)


async def test_an_existing_topic_is_left_alone(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as (source, target):
        await source.create("t")
        await target.create("t")
        await target.produce("t", batch_of([(b"own", b"1")]))
        await link(target, source)
        await until(lambda: "t" in status(target)["problems"], lambda: status(target))
        assert "an ordinary topic here" in status(target)["problems"]["t"]
        assert [each.key for each in read_all(target.log("t"))] == [b"own"]


async def test_a_cluster_does_not_follow_itself(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as broker:
        await broker.create("t")
        await link(broker, broker)
        await until(lambda: "this cluster itself" in status(broker)["reason"])


async def test_a_pattern_follows_new_topics_but_no_internal_ones(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as (source, target):
        await source.create("users")
        await source.create("orders")
        await link(target, source, topics=[], patterns=["u.*", "__.*"])
        await in_state(target, "copying")
        await source.create("uploads")
        await until(lambda: target.broker.topics.get("uploads") is not None)
        assert target.broker.topics.get("orders") is None


async def test_promoting_ends_open_transactions_and_makes_an_ordinary_topic(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as (source, target):
        await source.create("t", cleanup_policy="compact")
        log = source.log("t")
        begun = batch_of(
            [(b"k", b"open")],
            leader_epoch=4,
            producer_id=9,
            producer_epoch=2,
            base_sequence=0,
            is_transactional=True,
        )
        log.appender.append_as_follower(run_of(begun), now_ms=0)
        source.broker.group_commit.appended(log)
        await link(target, source)
        await until_equal(source, target)
        ours = target.log("t")
        assert ours.last_stable_offset == 0, "readers of committed records wait for the end"
        assert await target.broker.replication.promote("t", is_forced=False) == []

        assert ours.last_stable_offset == ours.high_watermark == 2
        read = ours.reader.read(
            Offset(0), max_bytes=1 << 20, whole_first_batch=True, isolation=Isolation.READ_COMMITTED
        )
        assert not isinstance(read, ErrorCode)
        assert list(read.aborted) == [(ProducerId(9), Offset(0))]
        found = target.broker.topics.get("t")
        assert found is not None
        assert found.config.is_compacted
        assert not any(name.startswith("mirror.") for name in found.overrides)
        # Our own cluster gives the same producer id to another client.
        own = batch_of([(b"k", b"own")], producer_id=9, producer_epoch=0, base_sequence=0)
        await target.produce("t", own)


@pytest.mark.parametrize("is_broken", [False, True], ids=["no-source", "broken-link"])
async def test_a_mirror_whose_source_is_gone_since_the_start_is_promoted_only_by_force_and_is_whole(
    tmp_path: Path, is_broken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The link has not met its mirrors yet: their open transactions would never end."""
    async with two_brokers(tmp_path) as (source, target):
        await source.create("t")
        await produce_as(source, 8, [b"open"], is_transactional=True)
        await link(target, source)
        await until_equal(source, target)
    if is_broken:
        monkeypatch.setattr(link_module.Link, "__init__", misconfigured)
    async with serving_broker(tmp_path / "target") as target:
        with pytest.raises(LinkRefused) as refused:
            await target.broker.replication.promote("t", is_forced=False)
        (reason,) = refused.value.missing
        assert "unknown" in reason
        assert len(await target.broker.replication.promote("t", is_forced=True)) == 1

        log = target.log("t")
        assert log.last_stable_offset == log.high_watermark == 2
        found = target.broker.topics.get("t")
        assert found is not None
        assert not found.config.is_mirror


def misconfigured(*_: object, **__: object) -> None:
    raise Misconfigured("a file of its client properties is gone")


async def test_promotion_names_what_is_missing(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as (source, target):
        await source.create("t", partitions=2)
        await source.produce("t", batch_of([(b"k", b"v")]))
        await link(target, source)
        await until_equal(source, target)
        await target.broker.replication.pause(LINK, is_paused=True)
        with pytest.raises(LinkRefused) as refused:
            await target.broker.replication.promote("t", is_forced=False)
        assert [text.partition(":")[0] for text in refused.value.missing] == ["t-0", "t-1"]
        assert len(await target.broker.replication.promote("t", is_forced=True)) == 2
        with pytest.raises(UnknownLink):
            await target.broker.replication.promote("t", is_forced=True)


async def test_a_link_goes_once_its_mirrors_are_promoted(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as (source, target):
        await source.create("t")
        await link(target, source)
        await in_state(target, "copying")
        with pytest.raises(LinkRefused, match="promote them first"):
            await target.broker.replication.delete(LINK)
        await target.broker.replication.promote("t", is_forced=True)
        await target.broker.replication.delete(LINK)
        assert target.broker.replication.shown() == []
    async with serving_broker(tmp_path / "target") as target:
        assert target.broker.replication.shown() == []
        assert target.broker.topics.get("t") is not None


async def test_a_link_that_is_creating_a_mirror_is_not_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two_brokers(tmp_path) as (source, target):
        await source.create("t")
        is_making, may_go_on = asyncio.Event(), asyncio.Event()
        create = TopicCreation.create

        async def held(*args: Any) -> Any:
            is_making.set()
            await may_go_on.wait()
            return await create(*args)

        monkeypatch.setattr(TopicCreation, "create", held)
        await link(target, source)
        await is_making.wait()
        asyncio.get_running_loop().call_soon(may_go_on.set)
        with pytest.raises(LinkRefused, match="promote them first"):
            await target.broker.replication.delete(LINK)
        await in_state(target, "copying")


async def test_a_refresh_under_way_does_not_take_a_promoted_topic_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two_brokers(tmp_path) as (source, target):
        await source.create("t")
        await source.produce("t", batch_of([(b"k", b"v")]))
        await link(target, source)
        await until_equal(source, target)
        reached, may_go_on = asyncio.Event(), asyncio.Event()
        follow, refreshes = MirrorTopics.follow, 0

        async def held(*args: Any) -> Any:
            nonlocal refreshes
            refreshes += 1
            made = await follow(*args)
            reached.set()
            await may_go_on.wait()
            return made

        monkeypatch.setattr(MirrorTopics, "follow", held)
        await reached.wait()
        # The source has changed: what the refresh would do next must not reach the promoted topic.
        await source.broker.topics.alter("t", lambda old, _: {**old, "segment.ms": "77000"})
        await target.broker.replication.promote("t", is_forced=True)
        may_go_on.set()
        await until(lambda: refreshes > 2)
        assert status(target)["partitions"] == []
        assert "t is an ordinary topic here" in status(target)["problems"]["t"]
        found = target.broker.topics.get("t")
        assert found is not None
        assert "segment.ms" not in found.overrides


async def test_what_a_refresh_wants_of_a_topic_is_refused_once_it_is_promoted(
    tmp_path: Path,
) -> None:
    async with serving_broker(tmp_path) as target:
        own = {"mirror.link": LINK, "mirror.source.topic.id": topic_id_text(SOURCE_ID)}
        await target.broker.topics.create("t", partitions_count=1, overrides=own)
        mirrored = target.broker.topics.get("t")
        assert mirrored is not None
        await target.broker.topics.alter("t", lambda *_: {})
        spec = parse_link(LINK, json.dumps({"bootstrap": "a", "topics": ["t"]}))
        mirrors = MirrorTopics(target.broker.topics)
        for partitions in (5, 1):
            found = source_topic("t", partitions, segment_ms="77000")
            refused = await mirrors._update(spec, mirrored, found)
            assert isinstance(refused, TopicRefused)
            assert "t was promoted" in refused.message
        promoted = target.broker.topics.get("t")
        assert promoted is not None
        assert (len(promoted.partitions), promoted.overrides) == (1, {})


async def test_a_link_whose_file_was_gone_runs_again_after_resume(tmp_path: Path) -> None:
    authority = tmp_path / "ca.pem"
    certificate = Certificates(tmp_path).authority_file.read_bytes()
    content = {
        "bootstrap": "127.0.0.1:1",
        "topics": ["t"],
        "properties": {"security.protocol": "SSL", "ssl.truststore.location": str(authority)},
    }
    authority.write_bytes(certificate)
    async with serving_broker(tmp_path / "target") as target:
        await target.broker.replication.create(parse_link(LINK, json.dumps(content)))
    authority.unlink()
    async with serving_broker(tmp_path / "target") as target:
        assert str(authority) in status(target)["reason"]
        assert status(target)["bootstrap"] == "127.0.0.1:1"
        await target.broker.replication.pause(LINK, is_paused=False)
        assert str(authority) in status(target)["reason"]
        authority.write_bytes(certificate)
        await target.broker.replication.pause(LINK, is_paused=False)
        await until(lambda: "no broker answers" in status(target)["reason"], lambda: status(target))


async def test_a_stored_link_that_cannot_be_read_says_why_and_can_be_deleted(
    tmp_path: Path,
) -> None:
    async with serving_broker(tmp_path) as target:
        await target.broker.metadata_log.txn((), [Put(key=f"/links/{LINK}", value="{")])
    async with serving_broker(tmp_path) as target:
        assert "link dr: " in status(target)["reason"]
        with pytest.raises(LinkRefused, match="link dr: "):
            await target.broker.replication.pause(LINK, is_paused=True)
        await target.broker.replication.delete(LINK)
        with pytest.raises(UnknownLink):
            await target.broker.replication.pause(LINK, is_paused=True)


async def test_a_source_that_calls_compaction_by_its_old_name_is_compacted(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as (source, target):
        await target.broker.features.set_levels({SPARSE_LOG: 0})
        await source.create("t", cleanup_policy="dedupe")
        await link(target, source)
        await in_state(target, "upgrade-required")


async def test_clients_read_a_mirror_and_cannot_write_to_it(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as (source, target):
        await source.create("t")
        await source.produce("t", batch_of([(b"k", b"v")]))
        await link(target, source)
        await until_equal(source, target)
        assert (await target.fetch("t", 0)).error_code == ErrorCode.NONE
        renamed = await target.broker.topics.alter("t", lambda old, _: dict(old))
        assert not isinstance(renamed, TopicRefused)


async def test_readers_of_committed_records_see_what_they_see_at_the_source(tmp_path: Path) -> None:
    """Transactions end while the mirror follows; the one that times out ends with a raised epoch."""
    async with two_brokers(tmp_path) as (source, target):
        await source.create("t")
        await link(target, source)
        await in_state(target, "copying")
        log = source.log("t")
        for producer_id, epoch, is_commit in ((1, 0, True), (2, 0, False), (3, 1, False)):
            begun = batch_of(
                [(b"k%d" % producer_id, b"v")] * 3,
                producer_id=producer_id,
                base_sequence=0,
                producer_epoch=0,
                is_transactional=True,
            )
            log.appender.append_as_leader(valid(begun), now_ms=0)
            source.broker.group_commit.appended(log)
            await until_equal(source, target)
            assert committed(target.log("t")) == committed(log)
            log.appender.append_marker(
                ProducerId(producer_id),
                Epoch(epoch),
                is_commit=is_commit,
                coordinator_epoch=Epoch(0),
                now_ms=0,
            )
            source.broker.group_commit.appended(log)
            await until_equal(source, target)
            assert committed(target.log("t")) == committed(log)


def committed(log: PartitionLog) -> tuple[int, list[tuple[int, int]]]:
    """Returns the last stable offset, and the aborted transactions for a reader of all."""
    read = log.reader.read(
        Offset(0), max_bytes=1 << 20, whole_first_batch=True, isolation=Isolation.READ_COMMITTED
    )
    assert not isinstance(read, ErrorCode)
    for region in read.regions:
        region.release()
    return log.last_stable_offset, list(read.aborted)


async def test_a_batch_larger_than_a_run_is_copied(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as (source, target):
        await source.create("t", max_message_bytes=str(4 << 20))
        for size in (10, 2 * RUN_BYTES_MAX, 20):
            await source.produce("t", batch_of([(b"k", bytes(size))]))
        await link(target, source)
        records = await until_equal(source, target)
        assert [len(each.value or b"") for each in records] == [10, 2 * RUN_BYTES_MAX, 20]


async def test_a_mirror_whose_files_are_ahead_of_the_start_counter_leads_above_them(
    tmp_path: Path,
) -> None:
    """An operator has restored a topic's directory, but not the counter beside it."""
    async with two_brokers(tmp_path) as (source, target):
        await source.create("t")
        await source.produce("t", batch_of([(b"k", b"v")]))
        await link(target, source)
        await until_equal(source, target)
        ours = target.log("t")
        later = batch_of([(b"k", b"later")], base_offset=1, leader_epoch=70)
        ours.appender.append_as_follower(run_of(later), now_ms=0)
        target.broker.group_commit.appended(ours)
        await target.broker.replication.promote("t", is_forced=True)
        assert ours.leader_epoch == 71
        (directory,) = target.broker.directories
        counter = Path(directory.path) / START_COUNTER
        assert int(counter.read_text()) == 71


async def test_a_limited_link_pays_for_what_it_copies_and_asks_for_a_second_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paid, asked = [], []
    pay, bounds = FetchPace.pay, FetchPace.bounds

    async def pay_and_note(self: FetchPace, bytes_count: int) -> None:
        paid.append(bytes_count)
        await pay(self, bytes_count)

    def bounds_and_note(self: FetchPace, given: FetchBounds) -> FetchBounds:
        asked.append(bounds(self, given).max_bytes)
        return bounds(self, given)

    monkeypatch.setattr(FetchPace, "pay", pay_and_note)
    monkeypatch.setattr(FetchPace, "bounds", bounds_and_note)
    async with two_brokers(tmp_path) as (source, target):
        await source.create("t")
        batch = batch_of([(b"k", b"v")] * 7)
        for _ in range(4):
            await source.produce("t", batch)
        await link(target, source, bytes_per_second=8_192)
        await until_equal(source, target)
        await until(lambda: sum(paid) == 4 * len(batch), lambda: paid)
        assert set(asked) == {8_192}
        await target.broker.replication.alter(LINK, '{"bytes_per_second": null}')
        await source.produce("t", batch)
        await until_equal(source, target)
        await until(lambda: max(asked) > 8_192)
        assert status(target)["bytes_per_second"] is None
    async with serving_broker(tmp_path / "target") as target:
        assert status(target)["bytes_per_second"] is None


async def until_slot(source: ServedBroker, offset: int) -> None:
    """Wait until the link has committed an offset, some time ago, and no commit is under way."""

    def is_committed() -> bool:
        entry = source.broker.groups.table.find("__mirror.dr")
        assert isinstance(entry, GroupEntry)
        slot = entry.offsets.get("t", 0)
        if slot is None or slot.offset != offset or entry.commits:
            return False
        return source.broker.clock.now_ms() > slot.commit_timestamp

    await until(is_committed)


async def test_slots_are_committed_also_if_the_topics_have_always_changed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refresh = link_module.Link._refresh

    async def stale(self: link_module.Link, client: BrokerClient) -> None:
        await refresh(self, client)
        self.look_again()

    monkeypatch.setattr(link_module.Link, "_refresh", stale)
    async with two_brokers(tmp_path) as (source, target):
        await source.create("t")
        await source.produce("t", batch_of([(b"a", b"1")]))
        await link(target, source)
        await until_equal(source, target)


async def test_a_topic_that_is_deleted_while_the_source_is_asked_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs = source_topics_module._configs

    async def late(client: BrokerClient, names: Sequence[str]) -> dict[str, DescribeConfigsResult]:
        return await configs(client, [*names, "deleted"])

    monkeypatch.setattr(source_topics_module, "_configs", late)
    async with two_brokers(tmp_path) as (source, target):
        await source.create("t")
        await source.produce("t", batch_of([(b"a", b"1")]))
        await link(target, source)
        await until_equal(source, target)
        assert not status(target)["reason"]


async def test_a_mirror_whose_slot_no_longer_holds_stops_and_starts_over_when_made_again(
    tmp_path: Path,
) -> None:
    async with two_brokers(tmp_path) as (source, target):
        await source.create("t", cleanup_policy="compact")
        await source.produce("t", batch_of([(b"a", b"1")]))
        await link(target, source)
        await until_equal(source, target)
        await target.broker.replication.pause(LINK, is_paused=True)
        await source.produce("t", batch_of([(b"a", None)]))
        await source.broker.topics.alter("t", lambda old, _: {**old, "compaction.hold.max.ms": "1"})
        await until_slot(source, 1)
        await source.broker.offsets.expiry.expire()
        assert source.broker.groups.holds.invalidated_total == 1

        await target.broker.replication.pause(LINK, is_paused=False)
        stopped = await in_state(target, "failed")

        assert "the source no longer holds tombstones for this mirror" in stopped["reason"]
        await target.broker.replication.promote("t", is_forced=True)
        await target.broker.replication.delete(LINK)
        topic = target.broker.topics.get("t")
        assert topic is not None
        await target.broker.topics.delete(topic)
        await link(target, source)
        await until_equal(source, target)


async def test_a_mirror_with_records_stops_if_the_source_has_lost_its_slot(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "source") as source:
        await source.create("t", cleanup_policy="compact")
        await source.produce("t", batch_of([(b"a", b"1")]))
        async with serving_broker(tmp_path / "target") as target:
            await link(target, source)
            await until_equal(source, target)
        await source.broker.offsets.expiry.topics_deleted({"t"})
        await source.produce("t", batch_of([(b"a", None)]))

        async with serving_broker(tmp_path / "target") as target:
            stopped = await in_state(target, "failed")
            assert "it is not known since when the mirror lags" in stopped["reason"]


async def test_no_record_is_lost_if_two_partitions_wake_a_fetch_together(tmp_path: Path) -> None:
    """The source reads them in the order in which they woke it, so the first of the answer may be
    empty only because the second one has left no room. Bounds are the defaults."""
    async with two_brokers(tmp_path) as (source, target):

        def has_ends(end: int) -> bool:
            return [each["synced_end"] for each in status(target)["partitions"]] == [end] * 2

        settings = {"max_message_bytes": "4000000", "cleanup_policy": "compact"}
        await source.create("t", partitions=2, **settings)
        await link(target, source)
        await until(lambda: states(target) == ["copying"] * 2, lambda: status(target))
        for number in range(10):
            await until(partial(has_ends, number))
            for partition, size in ((1, 1), (0, 1_300_000)):
                log = source.log("t", partition)
                batch = batch_of([(b"k%d" % number, b"v" * size)])
                log.appender.append_as_leader(valid(batch), now_ms=1)
                source.broker.group_commit.appended(log)
        await until(partial(has_ends, 10))
        copied = [mirror_log(target, "t", partition) for partition in (0, 1)]
        assert [len(read_all(log)) for log in copied if log is not None] == [10, 10]
