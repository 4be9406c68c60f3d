"""Each topic property takes effect on a topic in use as soon as the change is answered."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import aiohttp
import pytest

from cleaner.rules.hold import NO_HOLD
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from protocol.messages.produce import PartitionProduceResponse, ProduceResponse
from protocol.records.batch_scan import scan_batches
from protocol.records.compression import Codec
from protocol.records.record_batch import Record, build_batch
from protocol.wire.error_codes import ErrorCode
from server.coordination.groups.offset_checks import OUTSIDE
from server.replication.link_spec import LinkSpec
from server.replication.mirror_topics import MirrorTopics
from server.topics.topic import Topic
from storage.files.files import FileSystem
from storage.files.local_files import LocalFileSystem
from storage.files.paths import topic_id_text
from storage.formats.config_property import properties_of
from storage.formats.log_config import LogConfig
from storage.log.log import PartitionLog
from tests.harness.faulty_fs import FaultyFileSystem
from tests.harness.offsets_world import commit
from tests.harness.served_broker import (
    NOW_MS,
    ServedBroker,
    batch_of,
    only_produced,
    produce_request,
    records_in,
    serving_broker_on,
)
from tests.harness.source_topic import SOURCE_ID, source_topic

TOPIC = 2
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
QUICK = {
    "log_roll_check_interval_ms": "20",
    "log_retention_check_interval_ms": "20",
    "log_flush_scheduler_interval_ms": "20",
    "log_cleaner_backoff_ms": "20",
}
CLEANING = QUICK | {"log_cleaner_enable": "true"}


class Orders:
    """The topic "orders" of a running broker."""

    def __init__(self, served: ServedBroker) -> None:
        self.served = served

    @property
    def log(self) -> PartitionLog:
        return self.served.log("orders")

    async def set(self, name: str, value: str) -> None:
        """Change a property over the wire."""
        change = AlterableConfig(name=name, config_operation=0, value=value)
        asked = AlterConfigsResource(resource_type=TOPIC, resource_name="orders", configs=(change,))
        request = IncrementalAlterConfigsRequest(resources=(asked,), validate_only=False)
        (answer,) = (await self.served.call(request, 1, IncrementalAlterConfigsResponse)).responses
        assert answer.error_code == ErrorCode.NONE, answer

    async def produce(self, batch: bytes | bytearray | None = None) -> PartitionProduceResponse:
        """Try to produce a batch with acks=all."""
        request = produce_request("orders", batch_of(1) if batch is None else batch)
        return only_produced(await self.served.call(request, 9, ProduceResponse))

    async def code_of(self, batch: bytes | bytearray | None = None) -> int:
        return (await self.produce(batch)).error_code

    async def seal(self, batch: bytes | bytearray | None = None) -> None:
        """Produce a batch and roll its segment."""
        assert await self.code_of(batch) == ErrorCode.NONE
        self.log.roll(self.served.broker.clock.now_ms())

    async def cleaned_up_to(self, offset: int) -> None:
        await until(lambda: self.log.clean_offset == offset)

    async def values(self) -> list[bytes | None]:
        return [record.value for record in records_in(await self.served.fetch("orders", 0))]


@asynccontextmanager
async def orders(
    path: Path, broker: dict[str, str], files: FileSystem | None = None, **configs: Any
) -> AsyncIterator[Orders]:
    files = files or LocalFileSystem()
    async with serving_broker_on(files, path, **QUICK | broker) as served:
        await served.create("orders", **configs)
        yield Orders(served)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110 - threads set no event
            await asyncio.sleep(0.01)


async def a_while() -> None:
    """Sleep long enough for a check that runs every 20 ms to have done what it must not do."""
    await asyncio.sleep(0.15)


def dated(timestamp: int) -> bytearray:
    return build_batch([Record(offset=0, timestamp=timestamp, key=b"k", value=b"v")])


# Effects for producers.


async def by_a_link(topic: Orders, **properties: str) -> None:
    """Set properties that no client may set."""
    added = {name.replace("_", "."): value for name, value in properties.items()}
    altered = await topic.served.broker.topics.alter("orders", lambda old, _: {**old, **added})
    assert isinstance(altered, Topic), altered


async def mirror_link(path: Path) -> None:
    async with orders(path, {}) as topic:
        assert await topic.code_of() == ErrorCode.NONE
        await by_a_link(topic, mirror_link="dr")
        assert await topic.code_of() == ErrorCode.POLICY_VIOLATION


async def mirror_source_topic_id(path: Path) -> None:
    async with orders(path, {}) as topic:
        mirrors = MirrorTopics(topic.served.broker.topics)
        for number in (1, 2):
            await by_a_link(topic, mirror_source_topic_id=topic_id_text(UUID(int=number)))
            assert mirrors.source_id("orders") == UUID(int=number)


async def mirror_compaction(path: Path) -> None:
    async with orders(path, {}, cleanup_policy="compact") as topic:
        await by_a_link(topic, mirror_link="dr")
        assert not topic.log.config.is_compacted
        await topic.set("mirror.compaction", "on")
        assert topic.log.config.is_compacted


async def mirror_local_properties(path: Path) -> None:
    async with orders(path, {}) as topic:
        mirrors = MirrorTopics(topic.served.broker.topics)
        await by_a_link(topic, mirror_link="dr", mirror_source_topic_id=topic_id_text(SOURCE_ID))
        found = source_topic("orders", segment_ms="1000", segment_bytes="1048576")
        for local, expected in (("", 1000), ("segment.ms", 60_000)):
            await by_a_link(topic, segment_ms="60000", mirror_local_properties=local)
            await mirrors.follow(LinkSpec(name="dr", bootstrap="a"), [found])
            assert topic.log.config.segment_ms == expected
            assert topic.log.config.segment_bytes == 1 << 20


async def cleanup_policy(path: Path) -> None:
    async with orders(path, {}) as topic:
        assert await topic.code_of(batch_of(1, key=None)) == ErrorCode.NONE
        await topic.set("cleanup.policy", "compact")
        assert await topic.code_of(batch_of(1, key=None)) == ErrorCode.INVALID_RECORD


async def max_message_bytes(path: Path) -> None:
    async with orders(path, {}) as topic:
        assert await topic.code_of(batch_of(1, value=bytes(2000))) == ErrorCode.NONE
        await topic.set("max.message.bytes", "1000")
        too_large = ErrorCode.MESSAGE_TOO_LARGE
        assert await topic.code_of(batch_of(1, value=bytes(2000))) == too_large


async def min_insync_replicas(path: Path) -> None:
    async with orders(path, {}) as topic:
        assert await topic.code_of() == ErrorCode.NONE
        await topic.set("min.insync.replicas", "2")
        assert await topic.code_of() == ErrorCode.NOT_ENOUGH_REPLICAS


async def message_timestamp_type(path: Path) -> None:
    async with orders(path, {}) as topic:
        assert (await topic.produce()).log_append_time_ms == -1
        await topic.set("message.timestamp.type", "LogAppendTime")
        assert (await topic.produce()).log_append_time_ms > 0


async def message_timestamp_before_max_ms(path: Path) -> None:
    async with orders(path, {}) as topic:
        old = dated(NOW_MS - HOUR_MS)
        assert await topic.code_of(old) == ErrorCode.NONE
        await topic.set("message.timestamp.before.max.ms", "1000")
        assert await topic.code_of(old) == ErrorCode.INVALID_TIMESTAMP


async def message_timestamp_after_max_ms(path: Path) -> None:
    async with orders(path, {}) as topic:
        # Not from NOW_MS: the tests may have begun an hour ago.
        early = dated(time.time_ns() // 1_000_000 + HOUR_MS // 2)
        assert await topic.code_of(early) == ErrorCode.NONE
        await topic.set("message.timestamp.after.max.ms", "1000")
        assert await topic.code_of(early) == ErrorCode.INVALID_TIMESTAMP


async def compression_type(path: Path) -> None:
    async with orders(path, {}) as topic:
        await topic.produce(batch_of(10))
        await topic.set("compression.type", "zstd")
        await topic.produce(batch_of(10))
        data = (await topic.served.fetch("orders", 0)).records
        assert isinstance(data, memoryview)
        codecs = [batch.attributes & 7 for batch in scan_batches(data).batches]
        assert codecs == [Codec.NONE, Codec.ZSTD]


def level_of(codec: str, low: str, high: str) -> Callable[[Path], Awaitable[None]]:
    async def proof(path: Path) -> None:
        name = f"compression.{codec}.level"
        texts = b"".join(b"%d sparrows and %d finches, " % (n * n, n) for n in range(2000))
        async with orders(path, {}, compression_type=codec) as topic:
            sizes = [0]
            for level in (low, high):
                await topic.set(name, level)
                await topic.produce(batch_of(1, value=texts))
                sizes.append(topic.log.size_bytes - sum(sizes))
        assert sizes[2] < sizes[1]

    return proof


# Effects on the log.


async def segment_bytes(path: Path) -> None:
    async with orders(path, {}) as topic:
        for _ in range(3):
            await topic.produce(batch_of(1, value=bytes(600_000)))
        assert len(topic.log.segments) == 1
        await topic.set("segment.bytes", str(1 << 20))
        await topic.produce()
        assert len(topic.log.segments) == 2


async def segment_ms(path: Path) -> None:
    async with orders(path, {}) as topic:
        await topic.produce()
        await a_while()
        assert len(topic.log.segments) == 1
        await topic.set("segment.ms", "1")
        await until(lambda: len(topic.log.segments) == 2)


async def segment_jitter_ms(path: Path) -> None:
    async with orders(path, {}, segment_ms=str(HOUR_MS)) as topic:
        topic.log.appender._jitter = 1.0
        await topic.produce()
        await a_while()
        assert len(topic.log.segments) == 1
        await topic.set("segment.jitter.ms", str(HOUR_MS))
        await until(lambda: len(topic.log.segments) == 2)


async def segment_index_bytes(path: Path) -> None:
    async with orders(path, {}, index_interval_bytes="0") as topic:
        for _ in range(6):
            await topic.produce()
        assert len(topic.log.segments) == 1
        await topic.set("segment.index.bytes", "16")
        await topic.produce()
        assert len(topic.log.segments) == 2


async def index_interval_bytes(path: Path) -> None:
    async with orders(path, {}, segment_index_bytes="16") as topic:
        for _ in range(6):
            await topic.produce()
        assert len(topic.log.segments) == 1, "no entry, so no full index"
        await topic.set("index.interval.bytes", "0")
        for _ in range(6):
            await topic.produce()
        assert len(topic.log.segments) > 1


async def preallocate(path: Path) -> None:
    async with orders(path, {}, segment_bytes=str(1 << 20)) as topic:
        await topic.seal()
        before = allocated(topic)
        await topic.set("preallocate", "true")
        await topic.seal()
        assert allocated(topic) >= before + (1 << 20)


def allocated(topic: Orders) -> int:
    """Returns the bytes that the active segment's file takes on the disk."""
    files = sorted(Path(topic.log.directory).glob("*.log"))
    return files[-1].stat().st_blocks * 512


async def retention_ms(path: Path) -> None:
    async with orders(path, {}) as topic:
        await topic.seal(dated(NOW_MS - DAY_MS))
        await topic.produce()
        await a_while()
        assert topic.log.log_start_offset == 0
        await topic.set("retention.ms", str(DAY_MS // 2))
        await until(lambda: topic.log.log_start_offset == 1)


async def retention_bytes(path: Path) -> None:
    async with orders(path, {}) as topic:
        await topic.seal()
        await topic.produce()
        await a_while()
        assert topic.log.log_start_offset == 0
        await topic.set("retention.bytes", "1")
        await until(lambda: topic.log.log_start_offset > 0)


def count_syncs(files: FaultyFileSystem, directory: str) -> list[str]:
    """Returns a list that collects the files below a directory that are synced from now on."""
    syncs: list[str] = []
    check = files.faults.check

    def note(action: str, path: str, size: int = 0) -> None:
        if action == "sync" and path.startswith(directory):
            syncs.append(path)
        check(action, path, size)

    files.faults.check = note  # type: ignore[method-assign]
    return syncs


def flushed_by(name: str, value: str) -> Callable[[Path], Awaitable[None]]:
    async def proof(path: Path) -> None:
        files = FaultyFileSystem()
        async with orders(path, {"flush_on_acks_all": "false"}, files) as topic:
            syncs = count_syncs(files, topic.log.directory)
            await topic.produce()
            await a_while()
            assert syncs == []
            await topic.set(name, value)
            await topic.produce()
            await until(lambda: bool(syncs))

    return proof


# Effects on the cleaner.


def cleaned_after(name: str, before: str, after: str, **configs: Any) -> Callable[[Path], Any]:
    """Check that the cleaner skips the log with one value, and cleans it with the other."""

    async def proof(path: Path) -> None:
        configs[name.replace(".", "_")] = before
        async with orders(path, CLEANING, cleanup_policy="compact", **configs) as topic:
            for number in range(3):
                await topic.seal(batch_of(1, value=b"%d" % number))
            await a_while()
            assert topic.log.clean_offset == 0
            await topic.set(name, after)
            await topic.cleaned_up_to(3)

    return proof


async def compaction_idle_roll_ms(path: Path) -> None:
    broker = CLEANING | {"log_cleaner_idle_roll_ms": "-1"}
    async with orders(path, broker, cleanup_policy="compact") as topic:
        await topic.produce()
        await a_while()
        assert len(topic.log.segments) == 1
        await topic.set("compaction.idle.roll.ms", "10")
        await topic.cleaned_up_to(1)


async def delete_retention_ms(path: Path) -> None:
    async with orders(path, CLEANING, cleanup_policy="compact") as topic:
        await topic.seal(build_batch([Record(offset=0, timestamp=NOW_MS, key=b"a", value=None)]))
        await topic.seal()
        await topic.cleaned_up_to(2)
        assert None in await topic.values()
        await topic.set("delete.retention.ms", "0")
        await topic.seal(build_batch([Record(offset=0, timestamp=NOW_MS, key=b"b", value=None)]))
        await topic.seal(batch_of(1, value=b"last"))
        async with asyncio.timeout(20):
            while (await topic.values()).count(None) > 1:  # noqa: ASYNC110 - as in `until`
                await asyncio.sleep(0.02)


async def compaction_unkeyed_records(path: Path) -> None:
    configs: dict[str, Any] = {"cleanup_policy": "delete", "min_cleanable_dirty_ratio": "0.01"}
    async with orders(path, CLEANING, **configs) as topic:
        for value in (b"unkeyed", b"keyed"):
            key = None if value == b"unkeyed" else b"key"
            await topic.seal(batch_of(1, key=key, value=value))
        await topic.set("compaction.unkeyed.records", "keep")
        await topic.set("cleanup.policy", "compact")
        await topic.cleaned_up_to(2)
        assert await topic.values() == [b"unkeyed", b"keyed"]
        await topic.set("compaction.unkeyed.records", "drop")
        await topic.seal(batch_of(1, key=b"other", value=b"other"))
        await topic.cleaned_up_to(3)
        assert b"unkeyed" not in await topic.values()


async def compaction_unkeyed_topic(path: Path) -> None:
    async with orders(path, CLEANING, min_cleanable_dirty_ratio="0.01") as topic:
        for name in ("first", "second"):
            await topic.served.create(name)
        for value in (b"unkeyed", b"keyed"):
            await topic.seal(batch_of(1, key=None if value == b"unkeyed" else b"key", value=value))
        for target in ("first", "second"):
            await topic.set("compaction.unkeyed.topic", target)
        await topic.set("compaction.unkeyed.records", "move")
        await topic.set("cleanup.policy", "compact")
        await topic.cleaned_up_to(2)
        assert topic.served.log("first").log_end_offset == 0
        assert topic.served.log("second").log_end_offset == 1


def keeping(name: str, value: str) -> Callable[[Path], Any]:
    """Check that an older value of a key stays after the change, which would go without it."""

    async def proof(path: Path) -> None:
        now_ms = int(time.time() * 1000)
        async with orders(path, CLEANING, cleanup_policy="delete") as topic:
            for number in range(2):
                record = Record(offset=0, timestamp=now_ms, key=b"key", value=b"%d" % number)
                await topic.seal(build_batch([record]))
            await topic.seal(batch_of(1, key=b"other", value=b"last"))
            await topic.set(name, value)
            await topic.set("cleanup.policy", "compact")
            await topic.cleaned_up_to(3)
            assert await topic.values() == [b"0", b"1", b"last"]
            await topic.set(name, "1" if value.isdigit() else "")
            # The commit shows before the segments that readers see, so wait for what a reader gets.
            async with asyncio.timeout(20):
                while await topic.values() != [b"1", b"last"]:  # noqa: ASYNC110 - threads set no event
                    await asyncio.sleep(0.01)
            assert not topic.log.has_history

    return proof


def expiring(name: str, value: str) -> Callable[[Path], Any]:
    """Check that an old value of a key gets a tombstone after the change, and none before it."""

    async def proof(path: Path) -> None:
        timestamp = int(time.time() * 1000) - DAY_MS
        record = Record(
            offset=0, timestamp=timestamp, key=b"key", value=b"old", headers=(("ttl", b"1000"),)
        )
        async with orders(path, CLEANING, cleanup_policy="compact") as topic:
            await topic.seal(build_batch([record]))
            await a_while()
            assert await topic.values() == [b"old"]
            assert topic.log.log_end_offset == 1
            await topic.set(name, value)
            await until(lambda: topic.log.high_watermark == 2)

    return proof


async def min_segment_dead_ratio(path: Path) -> None:
    # The segments are too large to be merged, and a fetch gets the first one.
    small: dict[str, Any] = {"internal_segment_bytes": "100"}
    async with orders(path, CLEANING, cleanup_policy="delete", **small) as topic:
        await topic.seal(
            build_batch(
                [
                    Record(offset=number, timestamp=NOW_MS, key=key, value=value)
                    for number, (key, value) in enumerate(
                        [(b"key", b"0"), (b"a", b"1"), (b"b", b"2")]
                    )
                ]
            )
        )
        await topic.seal(batch_of(1, key=b"key", value=b"3"))
        await topic.set("min.segment.dead.ratio", "0.9")
        await topic.set("cleanup.policy", "compact")
        await topic.cleaned_up_to(4)
        assert await topic.values() == [b"0", b"1", b"2"]
        await topic.set("min.segment.dead.ratio", "0")
        async with asyncio.timeout(20):
            while await topic.values() != [b"1", b"2"]:  # noqa: ASYNC110 - threads set no event
                await asyncio.sleep(0.01)


def undone(name: str, value: str, **configs: Any) -> Callable[[Path], Any]:
    """Check that a pass can be undone after the change, and that nothing is kept after one to 0."""

    async def proof(path: Path) -> None:
        async with orders(path, CLEANING, cleanup_policy="delete", **configs) as topic:
            for number in range(2):
                await topic.seal(batch_of(1, key=b"key", value=b"%d" % number))
            await topic.set(name, value)
            await topic.set("cleanup.policy", "compact")
            await topic.cleaned_up_to(2)
            await until(lambda: topic.log.kept_bytes > 0)
            await topic.set(name, "0")
            # The broker's own duty may have removed it already.
            assert topic.log.kept_is_due(NOW_MS) or not topic.log.passes_kept
            topic.log.expire_kept(NOW_MS)
            assert topic.log.kept_bytes == 0

    return proof


async def compaction_window(path: Path) -> None:
    start = datetime.now(UTC) + timedelta(hours=12)
    closed = f"{start:%H:%M}-{start + timedelta(hours=1):%H:%M}"
    await cleaned_after("compaction.window", closed, "00:00-24:00")(path)


async def compaction_priority(path: Path) -> None:
    configs: dict[str, Any] = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01"}
    async with orders(
        path, CLEANING | {"log_cleaner_io_max_bytes_per_second": "1"}, **configs
    ) as topic:
        compaction = topic.served.broker.compaction
        assert compaction is not None
        for priority, head_start in (("high", 3), ("low", -3)):
            await topic.set("compaction.priority", priority)
            await topic.seal()
            candidate = compaction.pool._lookout.candidate(topic.log)
            assert candidate is not None
            assert candidate.head_start == head_start


async def compaction_compare_keys(path: Path) -> None:
    async with orders(path, CLEANING, cleanup_policy="delete") as topic:
        for number in range(2):
            await topic.seal(batch_of(1, key=b"key", value=b"%d" % number))
        await topic.set("compaction.compare.keys", "true")
        await topic.set("cleanup.policy", "compact")
        await topic.cleaned_up_to(2)
        compaction = topic.served.broker.compaction
        assert compaction is not None
        await until(lambda: bool(compaction.pool.status().last_reports))
        (report,) = compaction.pool.status().last_reports.values()
        assert report.keys_compared == 1


async def view_partitioner(path: Path) -> None:
    http = {"http_listener": "127.0.0.1:0"}
    async with orders(path, QUICK | http, partitions=4, cleanup_policy="compact") as topic:
        # This key's partition is another one, by either hash.
        await topic.served.produce("orders", batch_of(1, key=b"a", value=b"1"), 1)
        url = f"http://127.0.0.1:{topic.served.broker.http_port}/v1/topics/orders/keys/a"
        async with aiohttp.ClientSession() as session:
            async with session.get(url) as answer:
                assert answer.status == 200
            for partitioner in ("murmur2", "crc32"):
                await topic.set("view.partitioner", partitioner)
                async with session.get(url) as answer:
                    assert answer.status == 404


async def compaction_compression_type(path: Path) -> None:
    async with orders(path, CLEANING, cleanup_policy="delete") as topic:
        records = [Record(offset=n, timestamp=NOW_MS, key=b"%d" % n, value=b"v") for n in (0, 1)]
        await topic.seal(build_batch(records))
        await topic.seal(batch_of(1, key=b"0", value=b"newer"))
        await topic.set("compaction.compression.type", "zstd")
        await topic.set("cleanup.policy", "compact")
        await topic.cleaned_up_to(3)
        data = (await topic.served.fetch("orders", 0)).records
        assert isinstance(data, memoryview)
        codecs = [batch.attributes & 7 for batch in scan_batches(data).batches]
        assert codecs == [Codec.ZSTD, Codec.NONE]


def ranked_by(name: str, value: str, **configs: Any) -> Callable[[Path], Any]:
    """Check that the first record of a key, which has the highest version, wins after the change."""

    async def proof(path: Path) -> None:
        async with orders(path, CLEANING, cleanup_policy="delete", **configs) as topic:
            for number in (2, 1):
                record = Record(
                    offset=0,
                    timestamp=NOW_MS + number,
                    key=b"key",
                    value=b"%d" % number,
                    headers=(("version", number.to_bytes(8, "big")),),
                )
                await topic.seal(build_batch([record]))
            await topic.seal(batch_of(1, key=b"other", value=b"last"))
            await topic.set(name, value)
            await topic.set("cleanup.policy", "compact")
            await topic.cleaned_up_to(3)
            assert await topic.values() == [b"2", b"last"]

    return proof


async def commit_of_a_link(topic: Orders, at_ms: int) -> None:
    await topic.served.broker.groups.table.loads.loaded()
    record = commit(0, 1, group="g", topic="orders", commit_timestamp=at_ms)
    outcome = await topic.served.broker.offsets.commit("g", OUTSIDE, [record])
    assert outcome is ErrorCode.NONE


async def compaction_hold_groups(path: Path) -> None:
    async with orders(path, {}, cleanup_policy="compact") as topic:
        await commit_of_a_link(topic, NOW_MS)
        holds = topic.served.broker.groups.holds
        assert holds.hold_of(topic.log) == NO_HOLD
        await topic.set("compaction.hold.groups", "g")
        assert holds.hold_of(topic.log).offset == 1


async def compaction_hold_max_ms(path: Path) -> None:
    async with orders(path, {}, cleanup_policy="compact", compaction_hold_groups="g") as topic:
        for _ in range(2):
            await topic.produce()
        await commit_of_a_link(topic, NOW_MS - DAY_MS)
        offsets, holds = topic.served.broker.offsets, topic.served.broker.groups.holds
        await offsets.expiry.expire()
        assert holds.hold_of(topic.log).offset == 1
        await topic.set("compaction.hold.max.ms", str(HOUR_MS))
        await offsets.expiry.expire()
        assert holds.hold_of(topic.log) == NO_HOLD


HOUR = str(HOUR_MS)
PROOFS: dict[str, Callable[[Path], Awaitable[None]]] = {
    "cleanup.policy": cleanup_policy,
    "segment.bytes": segment_bytes,
    "segment.ms": segment_ms,
    "segment.jitter.ms": segment_jitter_ms,
    "segment.index.bytes": segment_index_bytes,
    "index.interval.bytes": index_interval_bytes,
    "max.message.bytes": max_message_bytes,
    "min.cleanable.dirty.ratio": cleaned_after("min.cleanable.dirty.ratio", "1", "0.1"),
    "min.compaction.lag.ms": cleaned_after("min.compaction.lag.ms", HOUR, "0"),
    "min.compaction.lag.bytes": cleaned_after("min.compaction.lag.bytes", "1000000", "0"),
    "max.compaction.lag.ms": cleaned_after(
        "max.compaction.lag.ms", HOUR, "1", min_cleanable_dirty_ratio="1"
    ),
    "compaction.idle.roll.ms": compaction_idle_roll_ms,
    "delete.retention.ms": delete_retention_ms,
    "compaction.unkeyed.records": compaction_unkeyed_records,
    "compaction.unkeyed.topic": compaction_unkeyed_topic,
    "compaction.strategy": ranked_by("compaction.strategy", "timestamp"),
    "compaction.strategy.header": ranked_by(
        "compaction.strategy.header",
        "version",
        compaction_strategy="header",
        compaction_strategy_header="another",
    ),
    "compaction.versions": keeping("compaction.versions", "2"),
    "compaction.thinning": keeping("compaction.thinning", "all for 1h"),
    "compaction.ttl.ms": expiring("compaction.ttl.ms", "1000"),
    "compaction.ttl.header": expiring("compaction.ttl.header", "ttl"),
    "min.segment.dead.ratio": min_segment_dead_ratio,
    "compaction.undo.ms": undone("compaction.undo.ms", HOUR),
    "compaction.undo.bytes": undone(
        "compaction.undo.bytes", "1000000", compaction_undo_ms=HOUR, compaction_undo_bytes="1"
    ),
    "compaction.window": compaction_window,
    # The slow pass may cover the first segments only: what came after them must be dirty enough alone.
    "compaction.io.max.bytes.per.second": cleaned_after(
        "compaction.io.max.bytes.per.second",
        "1",
        "1000000000",
        min_cleanable_dirty_ratio="0.01",
    ),
    "compaction.priority": compaction_priority,
    "compaction.compare.keys": compaction_compare_keys,
    "compaction.compression.type": compaction_compression_type,
    "view.partitioner": view_partitioner,
    "compaction.hold.groups": compaction_hold_groups,
    "compaction.hold.max.ms": compaction_hold_max_ms,
    "retention.ms": retention_ms,
    "retention.bytes": retention_bytes,
    "message.timestamp.type": message_timestamp_type,
    "message.timestamp.before.max.ms": message_timestamp_before_max_ms,
    "message.timestamp.after.max.ms": message_timestamp_after_max_ms,
    "compression.type": compression_type,
    "compression.gzip.level": level_of("gzip", "1", "9"),
    "compression.lz4.level": level_of("lz4", "9", "12"),
    "compression.zstd.level": level_of("zstd", "1", "19"),
    "flush.messages": flushed_by("flush.messages", "1"),
    "flush.ms": flushed_by("flush.ms", "1"),
    "preallocate": preallocate,
    "min.insync.replicas": min_insync_replicas,
    "mirror.link": mirror_link,
    "mirror.source.topic.id": mirror_source_topic_id,
    "mirror.compaction": mirror_compaction,
    "mirror.local.properties": mirror_local_properties,
}


@pytest.mark.parametrize("name", PROOFS)
async def test_a_property_has_its_effect_once_it_is_changed(name: str, tmp_path: Path) -> None:
    await PROOFS[name](tmp_path)


def test_every_property_has_a_proof_or_says_that_it_has_no_effect() -> None:
    for declared in properties_of(LogConfig).values():
        says_so = "no effect" in declared.doc or "not offered" in declared.doc
        assert declared.internal or says_so or declared.name in PROOFS, declared.name
