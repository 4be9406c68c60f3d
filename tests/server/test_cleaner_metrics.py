"""The cleaner's metrics of a running broker, over HTTP, match what the cleaner did."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest

from metrics import collector
from protocol.records.record_batch import Record, build_batch
from server.config.changes import ConfigChange, Operation
from server.topics.topic import Topic
from storage.files.paths import LOG
from storage.log.log import PartitionLog
from tests.harness.blocked_sidecar import block_sidecar
from tests.harness.scraped_world import samples_in
from tests.harness.served_broker import NOW_MS, ServedBroker, serving_broker

Samples = dict[tuple[str, ...], float]
CLEANER = {
    "http_listener": "127.0.0.1:0",
    "log_cleaner_enable": "true",
    "log_cleaner_index_ahead_enable": "false",
}
PASSES = "kompakt_log_passes_total", "table", "0", "completed"
UNCLEANABLE = "kafka_log_logcleanermanager_uncleanable"


@pytest.fixture(autouse=True)
def uncached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "CACHE_SECONDS", 0.0)


async def scrape(served: ServedBroker) -> Samples:
    url = f"http://127.0.0.1:{served.broker.http_port}/metrics"
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return samples_in(await response.text())


async def scraped_until(served: ServedBroker, holds: Callable[[Samples], bool]) -> Samples:
    while not holds(samples := await scrape(served)):  # noqa: ASYNC110 - by HTTP, as Prometheus
        await asyncio.sleep(0.02)
    return samples


async def fill(served: ServedBroker, topic: str = "table", count: int = 50) -> None:
    """Write ten keys many times, and a tombstone, in small segments; the last one is active."""
    for round_ in range(count):
        records = [
            Record(offset=n, timestamp=NOW_MS, key=b"%d" % n, value=None if n == 9 else b"v" * 50)
            for n in range(10)
        ]
        await served.produce(topic, build_batch(records))
        if round_ % 10 == 9:
            served.log(topic).roll(NOW_MS)


def flip_a_byte(log: PartitionLog) -> None:
    path = Path(log.segments[0].path(LOG))
    data = path.read_bytes()
    path.write_bytes(data[:64] + bytes([data[64] ^ 0xFF]) + data[65:])


async def alter(served: ServedBroker, name: str, value: str) -> None:
    """Set one property of the topic and keep its others."""
    altered = await served.broker.topics.alter("table", lambda own, _: {**own, name: value})
    assert isinstance(altered, Topic)


async def test_a_pass_moves_what_tells_of_its_log(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, **CLEANER, log_cleaner_backoff_ms="50") as served:
        await served.create("table", cleanup_policy="compact", min_cleanable_dirty_ratio="1")
        await fill(served)
        before = await scrape(served)
        await alter(served, "min.cleanable.dirty.ratio", "0.1")
        # A pass is counted when it ends, a little after its swap.
        after = await scraped_until(
            served,
            lambda s: s["kompakt_topic_dirty_bytes", "table"] == 0 and s.get(PASSES, 0) >= 1,
        )

    assert before["kompakt_log_dirty_bytes", "table", "0"] > 1000
    assert before["kafka_log_logcleanermanager_max_dirty_percent",] == 100
    assert before["kompakt_log_clean_offset_lag", "table", "0"] == 500
    assert before["kafka_log_logcleaner_max_buffer_utilization_percent",] == 0
    assert after["kafka_log_logcleanermanager_max_dirty_percent",] == 0
    assert after["kompakt_log_clean_offset_lag", "table", "0"] == 0
    assert after["kompakt_log_reclaimed_bytes_total", "table", "0"] > 1000
    assert after["kompakt_log_tombstones", "table", "0"] == 1
    horizon = after["kompakt_log_delete_horizon_timestamp_seconds", "table", "0"]
    assert horizon > NOW_MS / 1000 + 80_000
    assert after["kafka_log_logcleaner_max_buffer_utilization_percent",] > 0
    assert 0 < after["kafka_log_logcleaner_cleaner_recopy_percent",] < 100
    assert after["kafka_log_logcleaner_max_clean_time_secs",] > 0
    assert after["kafka_log_logcleanermanager_time_since_last_run_ms",] < 60_000
    assert after["kafka_log_logcleaner_deadthreadcount",] == 0


async def test_a_log_that_cannot_be_cleaned_is_counted_until_it_can(tmp_path: Path) -> None:
    name = f"{UNCLEANABLE}_partitions_count", str(tmp_path)
    failures = "kompakt_log_quarantine_failures", "table", "0", "disk_error"
    async with serving_broker(tmp_path, **CLEANER, log_cleaner_backoff_ms="50") as served:
        topic = await served.create(
            "table", cleanup_policy="compact", min_cleanable_dirty_ratio="1"
        )
        log = served.log("table")
        await fill(served)
        before = await scrape(served)
        block_sidecar(log)
        await alter(served, "max.compaction.lag.ms", "1")
        resting = await scraped_until(served, lambda s: s[name] == 1 and failures in s)
        later = await scraped_until(
            served, lambda s: s["kafka_log_logcleaner_max_compaction_delay_secs",] > 0.1
        )
        await served.broker.topics.delete(topic)
        gone = await scraped_until(served, lambda s: s[name] == 0)

    assert before[name] == 0
    assert resting[failures] >= 1
    assert resting[f"{UNCLEANABLE}_bytes", str(tmp_path)] == sum(
        segment.size for segment in log.segments[:-1]
    )
    assert later["kompakt_log_overdue_seconds", "table", "0"] > 0.1
    assert later["kompakt_cleaner_overdue_partitions",] == 1
    assert gone["kafka_log_logcleaner_max_compaction_delay_secs",] == 0
    assert not [labels for each, *labels in gone if "table" in labels and "compact" in each]


async def test_damaged_segments_are_counted_until_they_are_gone(tmp_path: Path) -> None:
    size = "kompakt_log_fenced_bytes", "table", "0"
    topics = "kompakt_topic_fenced_partitions", "table"
    async with serving_broker(tmp_path, **CLEANER, log_cleaner_backoff_ms="50") as served:
        await served.create("table", cleanup_policy="compact", min_cleanable_dirty_ratio="1")
        log = served.log("table")
        await fill(served)
        before = await scrape(served)
        flip_a_byte(log)
        await alter(served, "max.compaction.lag.ms", "1")
        fenced = await scraped_until(served, lambda s: size in s)
        flip_a_byte(log)
        compaction = served.broker.compaction
        assert compaction is not None
        await compaction.pool.clean_now(log)
        after = await scrape(served)

    assert size not in before
    assert fenced[size] > 1000
    assert fenced[topics] == 1
    assert size not in after
    assert topics not in after


async def test_a_change_of_the_cleaner_s_settings_leaves_its_metrics_in_place(
    tmp_path: Path,
) -> None:
    """In Kafka, they vanish or are wrong after its threads are replaced (KAFKA-16574, KAFKA-20346)."""
    async with serving_broker(tmp_path, **CLEANER, log_cleaner_backoff_ms="50") as served:
        await served.create("table", cleanup_policy="compact", min_cleanable_dirty_ratio="0")
        await fill(served)
        name = "kafka_log_logcleaner_max_buffer_utilization_percent"
        before = await scraped_until(served, lambda s: s[name,] > 0)

        change = ConfigChange(
            name="log.cleaner.io.max.bytes.per.second",
            value="1000000",
            operation=Operation.SET,
        )
        configs = served.broker.configs
        assert not await configs.alter("1", [change], replaces=False, validate_only=False)
        after = await scrape(served)

    kafka_s = {key for key in before if key[0].startswith("kafka_log_logcleaner")}
    assert len(kafka_s) >= 9
    assert kafka_s <= set(after)
    assert after[name,] > 0


async def test_a_broker_that_does_not_clean_shows_what_waits_all_the_same(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, http_listener="127.0.0.1:0") as served:
        await served.create("table", cleanup_policy="compact")
        await fill(served, count=10)
        samples = await scrape(served)

    assert samples["kompakt_log_dirty_bytes", "table", "0"] > 0
    assert ("kafka_log_logcleanermanager_time_since_last_run_ms",) not in samples
