"""A member of a consumer group in its own process; it prints each record that it has handled.

    python -m tests.harness.group_member CLIENT BOOTSTRAP GROUP TOPIC [property=value ...]

Each line of its output is `partition offset`; it commits a batch after it has printed all of it. On
SIGTERM it leaves the group cleanly. Properties have librdkafka's names for all clients; other clients
use those that they know. Two belong to this program: with `start.ms=TIMESTAMP` it seeks to that time
whenever it gets a partition, and with `pause=PARTITION` it pauses that partition until SIGCONT.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import time
import warnings
from collections.abc import Iterable
from typing import Any

SESSION_TIMEOUT_MS = 6_000
HEARTBEAT_MS = 500
POLL_S = 0.2
JOIN_S = 5.0
"""How long a member with kafka-python polls while it has no partitions; `JOIN_MS` of
`cli.consume.records` says why."""
RESTART_S = 0.05

_signals: list[int] = []
"""Contains SIGTERM once it was received."""
_continued: list[int] = []
"""Contains SIGCONT once it was received."""


class Manner:
    """The start position and the paused partition of a member."""

    def __init__(self, properties: dict[str, str]) -> None:
        start, pause = properties.pop("start.ms", None), properties.pop("pause", None)
        self.start_ms = None if start is None else int(start)
        self._pause = None if pause is None else int(pause)

    def paused(self, assigned: Iterable[Any]) -> list[Any]:
        """Returns those of the assigned partitions that must be paused."""
        return [part for part in assigned if part.partition == self._pause and not _continued]

    def resumed(self, assigned: Iterable[Any]) -> list[Any]:
        """Returns the partitions to resume after SIGCONT, once."""
        if not _continued or self._pause is None:
            return []
        parts = [part for part in assigned if part.partition == self._pause]
        if parts:
            self._pause = None
        return parts


def say(places: Iterable[tuple[int, int]]) -> None:
    """Print the handled records in one write."""
    sys.stdout.write("".join(f"{partition} {offset}\n" for partition, offset in places))
    sys.stdout.flush()


def confluent(bootstrap: str, group: str, topic: str, properties: dict[str, str]) -> None:
    from confluent_kafka import Consumer, KafkaException

    manner = Manner(properties)
    timeouts = {"session.timeout.ms": SESSION_TIMEOUT_MS, "heartbeat.interval.ms": HEARTBEAT_MS}
    if properties.get("group.protocol") == "consumer":
        timeouts = {}  # The broker sets them.
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "reconnect.backoff.max.ms": 500,
            **timeouts,
            **properties,
        }
    )

    def assigned(_: object, parts: list[Any]) -> None:
        if manner.start_ms is not None:
            for part in parts:
                part.offset = manner.start_ms
            consumer.assign(consumer.offsets_for_times(parts, 10))
        consumer.pause(manner.paused(parts))

    consumer.subscribe([topic], on_assign=assigned)
    while not _signals:
        consumer.resume(manner.resumed(consumer.assignment()))
        records = [record for record in consumer.consume(500, POLL_S) if record.error() is None]
        say((record.partition(), record.offset()) for record in records)
        if records:
            # After a rebalance another member has the partition and handles its records again.
            with contextlib.suppress(KafkaException):
                consumer.commit(asynchronous=False)
    consumer.close()


def kafka_python(bootstrap: str, group: str, topic: str, properties: dict[str, str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from kafka import KafkaConsumer
        from kafka.errors import KafkaError, RetriableError

    manner = Manner(properties)
    settings: dict[str, Any] = {"group_instance_id": properties.get("group.instance.id")}

    def begun() -> Any:
        consumer = KafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=int(properties.get("session.timeout.ms", SESSION_TIMEOUT_MS)),
            heartbeat_interval_ms=HEARTBEAT_MS,
            reconnect_backoff_max_ms=500,
            **{name: value for name, value in settings.items() if value is not None},
        )
        consumer.subscribe([topic], listener=python_listener(consumer, topic, manner))
        return consumer

    while not _signals:
        # While the broker is away, kafka-python 3 may raise from `poll`, and ask for metadata no more.
        with contextlib.suppress(RetriableError), contextlib.closing(begun()) as consumer:
            poll_until_a_signal(consumer, manner, KafkaError)
        time.sleep(RESTART_S)


def poll_until_a_signal(consumer: Any, manner: Manner, error: type[Exception]) -> None:
    """Handle records with kafka-python.

    Args:
        error: raised if a commit fails.
    """
    while not _signals:
        consumer.resume(*manner.resumed(consumer.assignment()))
        seconds = POLL_S if consumer.assignment() else JOIN_S
        polled = consumer.poll(timeout_ms=int(seconds * 1000))
        records = [record for batch in polled.values() for record in batch]
        say((record.partition, record.offset) for record in records)
        if records:
            with contextlib.suppress(error):
                consumer.commit()


def python_listener(consumer: Any, topic: str, manner: Manner) -> Any:
    """Returns a listener. It runs in the client's network code, so it must not send requests."""
    from kafka import ConsumerRebalanceListener, TopicPartition

    starts: dict[Any, Any] = {}
    if manner.start_ms is not None:
        parts = [TopicPartition(topic, each) for each in consumer.partitions_for_topic(topic)]
        starts = consumer.offsets_for_times(dict.fromkeys(parts, manner.start_ms))

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Any) -> None:
            pass

        def on_partitions_assigned(self, assigned: Any) -> None:
            for part in starts.keys() & set(assigned):
                consumer.seek(part, starts[part].offset)
            consumer.pause(*manner.paused(assigned))

    return Listener()


async def aio(bootstrap: str, group: str, topic: str, properties: dict[str, str]) -> None:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.errors import KafkaError

    manner = Manner(properties)
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=int(properties.get("session.timeout.ms", SESSION_TIMEOUT_MS)),
        heartbeat_interval_ms=HEARTBEAT_MS,
        group_instance_id=properties.get("group.instance.id"),
    )
    await consumer.start()
    consumer.subscribe([topic], listener=aio_listener(consumer, manner))
    while not _signals:
        consumer.resume(*manner.resumed(consumer.assignment()))
        polled = await consumer.getmany(timeout_ms=int(POLL_S * 1000))
        records = [record for batch in polled.values() for record in batch]
        say((record.partition, record.offset) for record in records)
        if records:
            with contextlib.suppress(KafkaError):
                await consumer.commit()
    await consumer.stop()


def aio_listener(consumer: Any, manner: Manner) -> Any:
    from aiokafka.abc import ConsumerRebalanceListener

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Any) -> None:
            pass

        async def on_partitions_assigned(self, assigned: Any) -> None:
            if manner.start_ms is not None:
                found = await consumer.offsets_for_times(dict.fromkeys(assigned, manner.start_ms))
                for part, place in found.items():
                    consumer.seek(part, place.offset)
            consumer.pause(*manner.paused(assigned))

    return Listener()


def main() -> None:
    signal.signal(signal.SIGTERM, lambda number, _: _signals.append(number))
    signal.signal(signal.SIGCONT, lambda number, _: _continued.append(number))
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
