"""Topics with `compaction.strategy` in a whole broker: what passes keep, report, explain and refuse."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from protocol.records.record import Headers
from protocol.records.record_batch import Record, build_batch
from protocol.wire.error_codes import ErrorCode
from server.metadata.store import Put
from server.topics.keys import TOPICS
from server.topics.topic import Topic, TopicRefused
from tests.harness.compacted_log import records_of
from tests.harness.lease_client import LeaseClient
from tests.harness.steered_broker import SteeredBroker, steered_broker

BY_HEADER = {
    "cleanup_policy": "compact",
    "compaction_strategy": "header",
    "compaction_strategy_header": "version",
}
BY_TIMESTAMP = {"cleanup_policy": "compact", "compaction_strategy": "timestamp"}


def version(number: int) -> Headers:
    return (("version", struct.pack(">q", number)),)


async def produce(
    broker: SteeredBroker,
    key: bytes,
    value: bytes | None,
    *,
    timestamp: int = 1_700_000_000_000,
    headers: Headers = (),
) -> None:
    record = Record(offset=0, timestamp=timestamp, key=key, value=value, headers=headers)
    await broker.served.produce("orders", build_batch([record]))


async def clean(broker: SteeredBroker) -> dict[str, Any]:
    """Run a pass. Returns its report."""
    job = await broker.finished(await broker.post("/topics/orders/now"))
    (part,) = job["partitions"]
    assert part["state"] == "done", part
    report: dict[str, Any] = part["report"]
    return report


def values(broker: SteeredBroker) -> dict[int, bytes | None]:
    return {record.offset: record.value for record in records_of(broker.served.log("orders"))}


async def test_the_highest_version_in_the_header_is_kept_and_the_late_record_named(
    tmp_path: Path,
) -> None:
    async with steered_broker(tmp_path) as broker:
        await broker.served.create("orders", 1, **BY_HEADER)
        await produce(broker, b"a", b"new", headers=version(2))
        await produce(broker, b"a", b"late", headers=version(1))
        await produce(broker, b"a", b"without a version")
        await produce(broker, b"b", b"the last one stays", headers=version(1))

        report = await clean(broker)

        assert values(broker) == {0: b"new", 3: b"the last one stays"}
        assert report["strategy"] == "header version"
        assert report["outranked"] == 2
        assert report["outranked_examples"] == [{"offset": 1, "outranked_by": 0}]
        assert report["is_verified"]
        (entry,) = (await broker.get("/history"))["passes"]
        assert entry["outranked_examples"] == [[1, 0]]


async def test_the_highest_timestamp_is_kept_over_passes_and_a_restart(tmp_path: Path) -> None:
    async with steered_broker(tmp_path) as broker:
        await broker.served.create("orders", 1, **BY_TIMESTAMP)
        await produce(broker, b"a", b"new", timestamp=1_700_000_002_000)
        await produce(broker, b"b", b"1", timestamp=1_700_000_000_000)
        await clean(broker)
    async with steered_broker(tmp_path) as broker:
        await produce(broker, b"a", b"late", timestamp=1_700_000_001_000)
        await produce(broker, b"b", b"2", timestamp=1_700_000_000_000)
        await clean(broker)
        await produce(broker, b"c", b"1")

        # The late record was the last one of its pass: the next pass drops it.
        assert values(broker) == {0: b"new", 3: b"2", 4: b"1"}


async def test_a_key_is_explained_by_its_versions(tmp_path: Path) -> None:
    async with steered_broker(tmp_path) as broker:
        await broker.served.create("orders", 1, **BY_HEADER)
        for number in (1, 3, 2):
            await produce(broker, b"a", b"v%d" % number, headers=version(number))
        job = await broker.finished(await broker.post("/topics/orders/partitions/0/find-key?key=a"))

        (part,) = job["partitions"]
        key = part["key"]
        assert [(each["version"], each["superseded_by"]) for each in key["records"]] == [
            (1, 1),
            (3, None),
            (2, 1),
        ]
        assert "outranked record goes with the first pass that reaches offset 2" in key["fate"][1]
        assert "by header version, the record at offset 1" in key["fate"][1]


async def test_internal_topics_keep_the_last_record(tmp_path: Path) -> None:
    async with steered_broker(tmp_path) as broker:
        topics = broker.served.broker.topics
        name = "__consumer_offsets"
        by_timestamp = {"compaction.strategy": "timestamp"}
        refused = await topics.create(name, overrides=by_timestamp)
        assert isinstance(refused, TopicRefused)
        assert refused.error_code == ErrorCode.INVALID_CONFIG
        assert isinstance(await topics.create(name), Topic)
        refused = await topics.alter(name, lambda *_: by_timestamp)
        assert isinstance(refused, TopicRefused)
        assert "compaction.strategy must be offset" in refused.message


async def test_a_strategy_by_header_needs_a_name_that_fits(tmp_path: Path) -> None:
    async with steered_broker(tmp_path) as broker:
        create = broker.served.broker.topics.create
        for overrides, text in (
            ({"compaction.strategy": "header"}, "needs compaction.strategy.header"),
            ({"compaction.strategy.header": "n" * 255}, "must have at most 254 bytes"),
            ({"compaction.strategy": "newest"}, "compaction.strategy"),
        ):
            refused = await create("orders", overrides=overrides)
            assert isinstance(refused, TopicRefused)
            assert (refused.error_code, text in refused.message) == (ErrorCode.INVALID_CONFIG, True)


async def test_executors_get_no_lease_for_a_topic_with_versions(tmp_path: Path) -> None:
    async with steered_broker(tmp_path, log_cleaner_remote_enable="true") as broker:
        await broker.served.create("orders", 1, **BY_TIMESTAMP)
        await produce(broker, b"a", b"1")
        client = LeaseClient(broker, tmp_path, "/topics/orders/partitions/0")

        status, answer = await client.ask("POST")

        assert status == 409
        assert "only the broker's own cleaner compares versions" in answer["error"]


async def test_a_change_of_strategy_applies_from_the_next_pass_on(tmp_path: Path) -> None:
    """Sidecars of another strategy are built again."""
    async with steered_broker(tmp_path) as broker:
        await broker.served.create("orders", 1, cleanup_policy="compact")
        await produce(broker, b"a", b"1", headers=version(5))
        await produce(broker, b"b", b"1", headers=version(1))
        assert (await clean(broker))["sidecars_built"] == 1
        strategy = {"compaction.strategy": "header", "compaction.strategy.header": "version"}
        altered = await broker.served.broker.topics.alter(
            "orders", lambda old, _: {**old, **strategy}
        )
        assert isinstance(altered, Topic)
        await produce(broker, b"a", b"late", headers=version(4))
        await produce(broker, b"c", b"1", headers=version(1))

        report = await clean(broker)

        assert report["sidecars_built"] == 2
        assert values(broker) == {0: b"1", 1: b"1", 3: b"1"}


@pytest.mark.parametrize(
    "overrides",
    [
        {"compaction.strategy": "from.the.future"},
        {"compaction.strategy": "header", "compaction.strategy.header": "n" * 255},
        {"compaction.versions": "of another kind"},
        {"compaction.thinning": "all for 1h, then none"},
        {"compaction.versions": "2", "compaction.strategy": "timestamp"},
    ],
)
async def test_a_topic_of_which_this_release_does_not_know_what_to_keep_is_not_compacted(
    tmp_path: Path, overrides: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """A pass would drop values that should stay."""
    async with steered_broker(tmp_path) as broker:
        await broker.served.create("orders", 1, cleanup_policy="compact")
        await set_unchecked(broker, "orders", {"cleanup.policy": "compact", **overrides})
    async with steered_broker(tmp_path) as broker:
        assert not broker.served.log("orders").config.is_compacted
        assert "orders: not compacted, because compaction." in caplog.text


async def test_an_invalid_setting_beside_a_strategy_does_not_lose_it(tmp_path: Path) -> None:
    async with steered_broker(tmp_path) as broker:
        await broker.served.create("orders", 1, cleanup_policy="compact")
        strategy = {"compaction.strategy": "header", "compaction.strategy.header": "version"}
        await set_unchecked(
            broker, "orders", {"from.the.future": "1", "cleanup.policy": "compact", **strategy}
        )
    async with steered_broker(tmp_path) as broker:
        config = broker.served.log("orders").config
        assert (config.is_compacted, str(config.strategy)) == (True, "header version")


async def set_unchecked(broker: SteeredBroker, name: str, overrides: dict[str, str]) -> None:
    """Write a topic's overrides as another release might have."""
    store = broker.served.broker.metadata_log
    entry = await store.get(TOPICS + name)
    assert entry is not None
    content = json.loads(entry.value) | {"configs": overrides}
    await store.txn((), [Put(key=TOPICS + name, value=json.dumps(content))])
