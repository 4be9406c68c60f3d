"""`__compaction_events` in a whole broker: what passes write there, and what never gets there."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cleaner.passes.verify_pass import PassVerifier, VerificationFailed
from protocol.records.batch_header import read_header
from protocol.records.record_batch import Record
from server.config.changes import ConfigChange, Operation
from server.durability.group_commit import GroupCommit
from server.events import writer as writer_module
from server.events.event import Started, key_of
from server.topics.topic import EVENTS_TOPIC
from storage.batches.validate import ValidBatch
from storage.files.errors import LogOffline
from storage.formats.topic_partition import TopicPartition
from storage.log.log import PartitionLog
from tests.harness.compacted_log import records_of
from tests.harness.json_schema import faults
from tests.harness.served_broker import NOW_MS, batch_of
from tests.harness.standby_broker import serving_source, standby_of
from tests.harness.steered_broker import SteeredBroker, steered_broker

ON = {"log_cleaner_events_enable": "true"}
SCHEMA = json.loads(
    (Path(__file__).parents[3] / "docs/reference/compaction-event.schema.json").read_text("utf-8")
)
Json = dict[str, Any]


def records(broker: SteeredBroker) -> list[Record]:
    topics = broker.served.broker.topics
    return [] if topics.get(EVENTS_TOPIC) is None else records_of(broker.served.log(EVENTS_TOPIC))


def events(broker: SteeredBroker) -> list[Json]:
    """All events, which must be as the schema says."""
    found = []
    for record in records(broker):
        if record.value is not None:
            event = json.loads(record.value)
            assert faults(event, SCHEMA, is_closed=True) == [], event
            assert record.key == f"{event['topic']}-{event['partition']}".encode()
            found.append(event)
    return found


def kinds(broker: SteeredBroker, topic: str) -> list[str]:
    return [each["event"] for each in events(broker) if each["topic"] == topic]


def last(broker: SteeredBroker) -> dict[bytes, bytes | None]:
    """What a reader of the whole topic knows."""
    return {record.key or b"": record.value for record in records(broker)}


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def clean(broker: SteeredBroker, topic: str) -> None:
    await broker.finished(await broker.post(f"/topics/{topic}/now"))


def damage(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1] + b"?")


async def test_the_start_and_the_end_of_each_pass_are_written(tmp_path: Path) -> None:
    async with steered_broker(tmp_path, **ON) as broker:
        await broker.served.create("orders", cleanup_policy="compact")
        await broker.produce_dirty("orders")
        await clean(broker, "orders")
        await until(lambda: len(events(broker)) == 2)
        started, completed = events(broker)
        count = broker.served.broker.cleaner_counts.events_by_result

    assert (started["event"], started["topic"], started["partition"]) == ("started", "orders", 0)
    assert completed["event"] == "completed"
    assert completed["time_ms"] >= started["time_ms"]
    assert completed["records_by_verdict"]["dropped_superseded"] == 2
    assert completed["reason"] == "REQUESTED"
    assert count == {"written": 2, "lost": 0}


def differs(*_: object, **__: object) -> None:
    raise VerificationFailed("the output differs at position 7")


async def test_a_failed_and_a_cancelled_pass_say_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with steered_broker(tmp_path, **ON) as broker:
        for topic in ("broken", "slow"):
            await broker.served.create(topic, cleanup_policy="compact")
            await broker.produce_dirty(topic)
        with monkeypatch.context() as patch:
            patch.setattr(PassVerifier, "check_group", differs)
            await clean(broker, "broken")
        throttle = broker.served.broker._cleaning
        assert throttle is not None
        throttle._pool.set_guard_rate(1)
        job = await broker.post("/topics/slow/now")
        await until(lambda: kinds(broker, "slow") == ["started"])
        await broker.post("/topics/slow/cancel")
        await broker.finished(job)
        await until(lambda: len(kinds(broker, "slow")) == 2)
        failed = [each for each in events(broker) if each["topic"] == "broken"][-1]
        cancelled = events(broker)[-1]

    assert (failed["event"], failed["failures"]) == ("failed", 1)
    assert failed["rest_seconds"] > 0
    assert "position" in failed["why"]
    assert cancelled["event"] == "cancelled"


async def test_a_pass_around_a_damaged_segment_counts_it(tmp_path: Path) -> None:
    async with steered_broker(tmp_path, **ON) as broker:
        await broker.served.create("broken", cleanup_policy="compact")
        await broker.produce_dirty("broken")
        log = broker.served.log("broken")
        log.roll(0)
        damage(Path(log.segments[0].path(".log")))

        await clean(broker, "broken")
        await until(lambda: kinds(broker, "broken")[-1:] == ["completed"])

        assert events(broker)[-1]["segments_damaged"] == 1


async def test_passes_over_the_topic_itself_have_no_events(tmp_path: Path) -> None:
    async with steered_broker(tmp_path, **ON) as broker:
        await broker.served.create("orders", cleanup_policy="compact")
        for _ in range(3):
            await broker.produce_dirty("orders")
            await clean(broker, "orders")
        await until(lambda: len(events(broker)) == 6)
        before = broker.served.log(EVENTS_TOPIC).log_end_offset
        await clean(broker, EVENTS_TOPIC)
        (entry,) = (await broker.get(f"/history?topic={EVENTS_TOPIC}"))["passes"]

        assert entry["result"] == "completed"
        assert entry["records_by_verdict"]["dropped_superseded"] == 5
        assert broker.served.log(EVENTS_TOPIC).log_end_offset == before
        assert kinds(broker, "orders") == ["completed"], "a reader knows the last state"


async def test_nothing_is_written_and_no_topic_made_unless_it_is_enabled(tmp_path: Path) -> None:
    async with steered_broker(tmp_path) as broker:
        await broker.served.create("orders", cleanup_policy="compact")
        await broker.produce_dirty("orders")
        await clean(broker, "orders")

        assert broker.served.broker.topics.get(EVENTS_TOPIC) is None


def change(text: str) -> ConfigChange:
    return ConfigChange(name="log.cleaner.events.enable", operation=Operation.SET, value=text)


async def test_it_is_switched_on_and_off_while_the_broker_runs(tmp_path: Path) -> None:
    async with steered_broker(tmp_path) as broker:
        cleaning = broker.served.broker._cleaning
        assert cleaning is not None
        configs = broker.served.broker.configs
        await broker.served.create("orders", cleanup_policy="compact")
        await broker.produce_dirty("orders")
        assert await configs.alter_own([change("true")]) is None
        await clean(broker, "orders")
        assert await configs.alter_own([change("false")]) is None
        await until(lambda: kinds(broker, "orders") == ["started", "completed"])  # What waited.
        await clean(broker, "orders")

        assert kinds(broker, "orders") == ["started", "completed"]


async def test_a_pass_that_ended_with_the_broker_gets_its_end_at_the_next_start(
    tmp_path: Path,
) -> None:
    async with steered_broker(tmp_path, **ON) as broker:
        await broker.served.create("orders", cleanup_policy="compact")
        await until(lambda: broker.served.broker.topics.get(EVENTS_TOPIC) is not None)
        cleaning = broker.served.broker._cleaning
        assert cleaning is not None
        log = TopicPartition("orders", 0)
        cleaning._events.offer(log, Started(topic="orders", partition=0, broker=1, time_ms=1))
        await until(lambda: kinds(broker, "orders") == ["started"])
    async with steered_broker(tmp_path, **ON) as broker:
        await until(lambda: len(events(broker)) == 2)
        (_, ended) = events(broker)

    assert ended["event"] == "aborted"
    assert "the broker ended before it did" in ended["why"]


async def test_the_log_of_a_deleted_topic_leaves_a_tombstone(tmp_path: Path) -> None:
    async with steered_broker(tmp_path, **ON) as broker:
        for name in ("orders", "later"):
            await broker.served.create(name, cleanup_policy="compact")
            await broker.produce_dirty(name)
            await clean(broker, name)
        await until(lambda: len(events(broker)) == 4)
        orders = broker.served.broker.topics.get("orders")
        assert orders is not None
        await broker.served.broker.topics.delete(orders)
        await until(lambda: last(broker)[b"orders-0"] is None)
    async with steered_broker(tmp_path) as broker:
        later = broker.served.broker.topics.get("later")
        assert later is not None
        await broker.served.broker.topics.delete(later)
    async with steered_broker(tmp_path, **ON) as broker:
        await until(lambda: last(broker) == {b"orders-0": None, b"later-0": None})


async def test_events_beyond_those_that_may_wait_are_lost_the_oldest_first_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "WAITING_MAX", 2)
    async with steered_broker(tmp_path, **ON) as broker:
        await broker.served.create("orders", 5)
        await until(lambda: broker.served.broker.topics.get(EVENTS_TOPIC) is not None)
        cleaning = broker.served.broker._cleaning
        assert cleaning is not None
        for number in range(5):
            log = TopicPartition("orders", number)
            event = Started(topic="orders", partition=number, broker=1, time_ms=1)
            cleaning._events.offer(log, event)
        await until(lambda: len(events(broker)) == 2)

        assert [each["partition"] for each in events(broker)] == [3, 4]
        assert broker.served.broker.cleaner_counts.events_by_result["lost"] == 3


async def test_what_the_topic_cannot_take_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(writer_module, "RETRY_SECONDS", 0.01)
    async with steered_broker(tmp_path, **ON) as broker:
        await broker.served.create("orders", cleanup_policy="compact")
        await until(lambda: broker.served.broker.topics.get(EVENTS_TOPIC) is not None)
        log = broker.served.log(EVENTS_TOPIC)
        with monkeypatch.context() as broken:
            broken.setattr(type(log.appender), "append_as_leader", _refuse_events(log))
            await broker.produce_dirty("orders")
            await clean(broker, "orders")
            await until(lambda: "cannot write to" in caplog.text)
            assert events(broker) == []
        await until(lambda: kinds(broker, "orders") == ["started", "completed"])

        assert caplog.text.count("cannot write to") == 1
        assert broker.served.broker.cleaner_counts.events_by_result["lost"] == 0


def _refuse_events(log: Any) -> Any:
    append = type(log.appender).append_as_leader

    def refuse(appender: Any, *arguments: Any, **options: Any) -> Any:
        if appender is log.appender:
            raise LogOffline(EVENTS_TOPIC, "a test says so")
        return append(appender, *arguments, **options)

    return refuse


async def test_an_event_larger_than_a_batch_is_lost_and_the_others_are_written(
    tmp_path: Path,
) -> None:
    async with steered_broker(tmp_path, **ON) as broker:
        await broker.served.create("orders", 2)
        await until(lambda: broker.served.broker.topics.get(EVENTS_TOPIC) is not None)
        await broker.served.broker.topics.alter(
            EVENTS_TOPIC, lambda old, _: {**old, "max.message.bytes": "400"}
        )
        cleaning = broker.served.broker._cleaning
        assert cleaning is not None
        large = Started(topic="t" * 400, partition=0, broker=1, time_ms=1)
        for number, event in (
            (0, large),
            (1, Started(topic="orders", partition=1, broker=1, time_ms=1)),
        ):
            cleaning._events.offer(TopicPartition("orders", number), event)
        await until(lambda: len(records(broker)) == 1)

        assert list(last(broker)) == [key_of(TopicPartition("orders", 1))]
        assert broker.served.broker.cleaner_counts.events_by_result == {"written": 1, "lost": 1}


async def test_a_fenced_broker_writes_none(tmp_path: Path) -> None:
    async with steered_broker(tmp_path, **ON) as broker:
        await until(lambda: broker.served.broker.topics.get(EVENTS_TOPIC) is not None)
    async with steered_broker(
        tmp_path, **ON, broker_fenced_by="another", inter_broker_listener_name="PLAINTEXT"
    ) as broker:
        assert broker.served.broker._cleaning is None


async def test_a_disk_that_hangs_does_not_hold_up_changes_of_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs, answers = asyncio.Event(), asyncio.Event()
    durable = GroupCommit.durable

    async def hang(commit: GroupCommit, log: PartitionLog, offset: int) -> bool:
        if log.topic_partition.topic == EVENTS_TOPIC:
            hangs.set()
            await answers.wait()
        return await durable(commit, log, offset)

    async with asyncio.timeout(60), steered_broker(tmp_path, **ON) as broker:
        configs = broker.served.broker.configs
        await broker.served.create("orders", cleanup_policy="compact")
        await broker.produce_dirty("orders")
        monkeypatch.setattr(GroupCommit, "durable", hang)
        await clean(broker, "orders")
        await hangs.wait()
        try:
            for text in ("false", "true", "false", "true"):
                assert await configs.alter_own([change(text)]) is None
            await clean(broker, "orders")
        finally:
            answers.set()
        await until(lambda: len(kinds(broker, "orders")) >= 3)

        assert kinds(broker, "orders")[-1] == "completed"
        assert broker.served.broker.cleaner_counts.events_by_result["lost"] == 0


async def test_a_standby_writes_none_and_makes_no_topic(tmp_path: Path) -> None:
    cleans = {"log.cleaner.enable": "true", "log.cleaner.events.enable": "true"}
    async with (
        serving_source(tmp_path / "source") as source,
        standby_of(source, tmp_path / "standby", properties=cleans) as standby,
    ):
        assert standby._cleaning is not None
        assert not standby._cleaning._events.is_enabled
        await standby._cleaning.configure(standby.config)
        assert not standby._cleaning._events.is_enabled
        assert standby.topics.get(EVENTS_TOPIC) is None


async def test_records_of_others_in_an_older_topic_of_this_name_do_no_harm(tmp_path: Path) -> None:
    async with steered_broker(tmp_path) as broker:
        await broker.served.create(EVENTS_TOPIC, cleanup_policy="compact")
        log = broker.served.log(EVENTS_TOPIC)
        for key, value in ((b"orders-0", b'{"event": "\xff"}'), (b"t-" + b"1" * 5000, b"{}")):
            # As a client did, under a release that let clients write to it.
            batch = batch_of(1, key=key, value=value)
            valid = ValidBatch(read_header(batch), memoryview(batch))
            log.appender.append_as_leader(valid, now_ms=NOW_MS)
    async with steered_broker(tmp_path, **ON) as broker:
        await broker.served.create("orders", cleanup_policy="compact")
        await broker.produce_dirty("orders")
        await clean(broker, "orders")
        await until(lambda: last(broker)[b"orders-0"] is not None)
        await until(lambda: b'"completed"' in (last(broker)[b"orders-0"] or b""))


async def test_an_unexpected_error_does_not_end_the_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(writer_module, "RETRY_SECONDS", 0.01)

    def fail(_: PartitionLog) -> dict[TopicPartition, bool]:
        raise RuntimeError("unforeseen")

    async with steered_broker(tmp_path, **ON) as broker:
        with monkeypatch.context() as broken:
            broken.setattr(writer_module, "last_events", fail)
            await until(lambda: "unforeseen" in caplog.text)
        await broker.served.create("orders", cleanup_policy="compact")
        await broker.produce_dirty("orders")
        await clean(broker, "orders")
        await until(lambda: kinds(broker, "orders") == ["started", "completed"])
