"""Topics that keep older values in a whole broker: what passes keep, report, explain and refuse."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.wire.error_codes import ErrorCode
from server.topics.topic import Topic, TopicRefused
from tests.harness.lease_client import LeaseClient
from tests.harness.steered_broker import steered_broker
from tests.server.test_strategies import clean, produce, values

TWO_VERSIONS = {"cleanup_policy": "compact", "compaction_versions": "2"}
THINNED = {"cleanup_policy": "compact", "compaction_thinning": "all for 1h, one per 1h for 1d"}


async def test_the_last_two_values_stay_over_passes_and_a_restart(tmp_path: Path) -> None:
    async with steered_broker(tmp_path) as broker:
        await broker.served.create("orders", 1, **TWO_VERSIONS)
        for value in (b"1", b"2", b"3"):
            await produce(broker, b"a", value)

        report = await clean(broker)

        assert values(broker) == {1: b"2", 2: b"3"}
        assert report["history"] == "the last 2 values"
        assert (report["sweeps"], report["history_due_ms"]) == (False, None)
    async with steered_broker(tmp_path) as broker:
        await produce(broker, b"a", b"4")
        assert (await clean(broker))["is_verified"]
        assert values(broker) == {2: b"3", 3: b"4"}


async def test_a_key_is_explained_with_its_older_values(tmp_path: Path) -> None:
    async with steered_broker(tmp_path) as broker:
        await broker.served.create("orders", 1, **TWO_VERSIONS)
        for value in (b"1", b"2", b"3"):
            await produce(broker, b"a", value)
        job = await broker.finished(await broker.post("/topics/orders/partitions/0/find-key?key=a"))

        (part,) = job["partitions"]
        records = part["key"]["records"]
        assert [each["is_older_value"] for each in records] == [False, True, False]
        assert [each["superseded_by"] for each in records] == [2, None, None]
        assert "1 older value stays beside its last one" in part["key"]["fate"][1]


async def test_a_changed_setting_applies_to_keys_without_new_records(tmp_path: Path) -> None:
    async with steered_broker(tmp_path) as broker:
        await broker.served.create("orders", 1, **TWO_VERSIONS)
        await produce(broker, b"a", b"1")
        await produce(broker, b"a", b"2")
        await produce(broker, b"b", b"1")
        await clean(broker)
        altered = await broker.served.broker.topics.alter(
            "orders", lambda old, _: {**old, "compaction.versions": "1"}
        )
        assert isinstance(altered, Topic)

        report = await clean(broker)

        assert values(broker) == {1: b"2", 2: b"1"}
        assert (report["history"], report["sweeps"]) == ("the last value", True)
        assert not broker.served.log("orders").has_history


async def test_internal_topics_keep_no_older_values(tmp_path: Path) -> None:
    async with steered_broker(tmp_path) as broker:
        for overrides in ({"compaction.versions": "2"}, {"compaction.thinning": "all for 1h"}):
            refused = await broker.served.broker.topics.create(
                "__consumer_offsets", overrides=overrides
            )
            assert isinstance(refused, TopicRefused)
            assert refused.error_code == ErrorCode.INVALID_CONFIG
            assert "compaction.versions 1, compaction.thinning empty" in refused.message


async def test_executors_get_no_lease_for_a_topic_with_older_values(tmp_path: Path) -> None:
    async with steered_broker(tmp_path, log_cleaner_remote_enable="true") as broker:
        await broker.served.create("orders", 1, **THINNED)
        await produce(broker, b"a", b"1")
        client = LeaseClient(broker, tmp_path, "/topics/orders/partitions/0")

        status, answer = await client.ask("POST")

        assert status == 409
        assert "only the broker's own cleaner judges them" in answer["error"]


async def test_the_broker_warns_of_settings_that_do_harm(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with steered_broker(tmp_path) as broker:
        await broker.served.create("orders", 1, **THINNED)
        assert "orders: values are thinned by their timestamps" in caplog.text
        caplog.clear()
        altered = await broker.served.broker.topics.alter(
            "orders", lambda old, _: {**old, "message.timestamp.type": "LogAppendTime"}
        )
        assert isinstance(altered, Topic)
        assert "are thinned" not in caplog.text
