"""Topics whose values expire, in a whole broker and with a client."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from cleaner.rules import due_ranges
from cli.compact.output import expiry_text
from protocol.wire.error_codes import ErrorCode
from server.topics.topic import Topic, TopicRefused
from tests.harness.compacted_log import records_of
from tests.harness.steered_broker import Json, SteeredBroker, steered_broker
from tests.server.test_strategies import clean, produce

HOUR_MS = 3_600_000
EXPIRING = {
    "cleanup_policy": "compact",
    "compaction_ttl_ms": str(HOUR_MS),
    "compaction_ttl_header": "ttl",
}
EAGER = {"log_cleaner_backoff_ms": "20"}
"""Properties of a cleaner that looks for work all the time."""


async def until_swept(broker: SteeredBroker) -> Json:
    """Returns the broker's status once a sweep has completed."""
    async with asyncio.timeout(60):
        while not (status := await broker.get())["expiries"]:  # noqa: ASYNC110 - over HTTP
            await asyncio.sleep(0.02)
    return status


async def test_a_client_sees_that_a_value_expired_and_a_pass_drops_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Else values that come after the first sweep would wait for a minute.
    monkeypatch.setattr(due_ranges, "PAUSE_MS_MIN", 0)
    now_ms = int(time.time() * 1000)
    async with steered_broker(tmp_path, **EAGER) as broker:
        await broker.served.create("orders", 1, **EXPIRING)
        host, port = broker.served.broker.addresses["PLAINTEXT"]
        servers = f"{host}:{port}"
        async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
            for key, age_ms, headers in (
                (b"old", HOUR_MS, []),
                (b"young", 0, []),
                (b"own", 1000, [("ttl", b"1000")]),
            ):
                await producer.send_and_wait(
                    "orders", b"v", key=key, timestamp_ms=now_ms - age_ms, headers=headers
                )
        async with AIOKafkaConsumer(
            "orders", bootstrap_servers=servers, auto_offset_reset="earliest"
        ) as consumer:
            seen = [await asyncio.wait_for(consumer.getone(), 60) for _ in range(5)]

        # A sweep may have come between two of the records, but none wrote two tombstones for a key.
        expired = {each.key: each.headers for each in seen if each.value is None}
        assert expired == {
            b"old": (("kompakt.expired", b"0"),),
            b"own": (("kompakt.expired", b"2"),),
        }
        await produce(broker, b"end", b"v", timestamp=now_ms)
        await clean(broker)
        left = [(each.key, each.value) for each in records_of(broker.served.log("orders"))]
        assert (b"old", b"v") not in left
        assert (b"own", b"v") not in left
        assert (b"young", b"v") in left


async def test_status_explain_and_the_key_say_when_values_expire(tmp_path: Path) -> None:
    now_ms = int(time.time() * 1000)
    async with steered_broker(tmp_path, **EAGER) as broker:
        await broker.served.create("orders", 1, **EXPIRING)
        await produce(broker, b"young", b"v", timestamp=now_ms)

        status = await until_swept(broker)
        (expiry,) = status["expiries"]
        explained = await broker.get("/topics/orders/partitions/0/explain")
        path = "/topics/orders/partitions/0/find-key?key=young"
        job = await broker.finished(await broker.post(path))

        assert (expiry["topic"], expiry["tombstones"]) == ("orders", 0)
        assert expiry["due_ms"] == now_ms + HOUR_MS
        (part,) = explained["partitions"]
        assert part["expiry"]["due_ms"] == now_ms + HOUR_MS
        assert "the next value that it has read expires at" in expiry_text(part["expiry"])
        (fate,) = job["partitions"][0]["key"]["fate"]
        assert fate.startswith("its last value, at offset 0, expires at ")
        assert broker.served.broker.cleaner_counts.sweeps_total == 1


@pytest.mark.parametrize(
    "property_", [("compaction.ttl.ms", "1"), ("compaction.ttl.header", "ttl")]
)
async def test_values_of_internal_topics_do_not_expire(
    tmp_path: Path, property_: tuple[str, str]
) -> None:
    async with steered_broker(tmp_path) as broker:
        refused = await broker.served.broker.topics.create(
            "__consumer_offsets", overrides=dict([property_])
        )

        assert isinstance(refused, TopicRefused)
        assert refused.error_code == ErrorCode.INVALID_CONFIG
        assert "compaction.ttl.ms must be -1" in refused.message


async def test_the_broker_warns_of_clocks_of_producers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with steered_broker(tmp_path) as broker:
        await broker.served.create("orders", 1, **EXPIRING)
        assert "orders: values expire by their timestamps" in caplog.text
        altered = await broker.served.broker.topics.alter(
            "orders", lambda old, _: {**old, "compaction.ttl.header": "x" * 255}
        )
        assert not isinstance(altered, Topic)
