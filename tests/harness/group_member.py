"""A member of a consumer group, as a process of its own: it says what it has handled, a line a record.

    python -m tests.harness.group_member CLIENT BOOTSTRAP GROUP TOPIC [property=value ...]

Each line of its output is `partition offset`; a batch is committed once all of it was said. SIGTERM
lets it leave the group in order. Properties are librdkafka's, also for the other clients, which take
those they know.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import warnings
from collections.abc import Iterable
from typing import Any

SESSION_TIMEOUT_MS = 6_000
HEARTBEAT_MS = 500
POLL_S = 0.2

_signals: list[int] = []
"""SIGTERM, once it has come."""


def say(places: Iterable[tuple[int, int]]) -> None:
    """Say what was handled, all at once."""
    sys.stdout.write("".join(f"{partition} {offset}\n" for partition, offset in places))
    sys.stdout.flush()


def confluent(bootstrap: str, group: str, topic: str, properties: dict[str, str]) -> None:
    from confluent_kafka import Consumer, KafkaException

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "reconnect.backoff.max.ms": 500,
            **properties,
        }
    )
    consumer.subscribe([topic])
    while not _signals:
        records = [record for record in consumer.consume(500, POLL_S) if record.error() is None]
        say((record.partition(), record.offset()) for record in records)
        if records:
            # After a rebalance somebody else has the partition, and handles it again.
            with contextlib.suppress(KafkaException):
                consumer.commit(asynchronous=False)
    consumer.close()


def kafka_python(bootstrap: str, group: str, topic: str, properties: dict[str, str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from kafka import KafkaConsumer
        from kafka.errors import KafkaError

    settings: dict[str, Any] = {"group_instance_id": properties.get("group.instance.id")}
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        reconnect_backoff_max_ms=500,
        **{name: value for name, value in settings.items() if value is not None},
    )
    while not _signals:
        polled = consumer.poll(timeout_ms=int(POLL_S * 1000))
        records = [record for batch in polled.values() for record in batch]
        say((record.partition, record.offset) for record in records)
        if records:
            with contextlib.suppress(KafkaError):
                consumer.commit()
    consumer.close()


async def aio(bootstrap: str, group: str, topic: str, properties: dict[str, str]) -> None:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.errors import KafkaError

    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        group_instance_id=properties.get("group.instance.id"),
    )
    await consumer.start()
    while not _signals:
        polled = await consumer.getmany(timeout_ms=int(POLL_S * 1000))
        records = [record for batch in polled.values() for record in batch]
        say((record.partition, record.offset) for record in records)
        if records:
            with contextlib.suppress(KafkaError):
                await consumer.commit()
    await consumer.stop()


def main() -> None:
    signal.signal(signal.SIGTERM, lambda number, _: _signals.append(number))
    client, bootstrap, group, topic, *pairs = sys.argv[1:]
    properties = dict(pair.split("=", 1) for pair in pairs)
    match client:
        case "confluent-kafka":
            confluent(bootstrap, group, topic, properties)
        case "kafka-python":
            kafka_python(bootstrap, group, topic, properties)
        case "aiokafka":
            asyncio.run(aio(bootstrap, group, topic, properties))
        case _:
            raise SystemExit(f"no client {client}")


if __name__ == "__main__":
    main()
