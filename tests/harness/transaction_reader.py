"""Reads partitions like read_committed consumers, each from its start to its last stable offset."""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from tests.harness.transaction_history import Place, Seen, Snapshot
from tests.harness.transaction_java import read_committed_by_java

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer
    from kafka import TopicPartition as PyTopicPartition

SECONDS_MAX = 30.0

Records = dict[Place, list[Seen]]


class NotRead(AssertionError):
    """A reader did not finish in time, so that a hang is reported. The message says what is missing."""


def read_committed(
    bootstrap: str, places: Sequence[Place], reader: str, client: str = "confluent-kafka"
) -> Snapshot:
    """Returns the records that a client gets now.

    Raises:
        NotRead: an end was not reached in time.
    """
    if client.startswith("java-"):
        name = client.removeprefix("java-")
        return Snapshot(reader, *read_committed_by_java(bootstrap, places, name))
    consumer = confluent_consumer(bootstrap)
    try:
        ends = {
            place: consumer.get_watermark_offsets(TopicPartition(*place), timeout=SECONDS_MAX)[1]
            for place in places
        }
        match client:
            case "confluent-kafka":
                records = by_confluent(consumer, ends)
            case "kafka-python":
                records = by_kafka_python(bootstrap, ends)
            case "aiokafka":
                records = asyncio.run(by_aiokafka(bootstrap, ends))
            case _:
                raise ValueError(client)
    finally:
        consumer.close()
    return Snapshot(reader, ends, records)


def confluent_consumer(bootstrap: str, group: str = "none: partitions are assigned") -> Consumer:
    """Returns a read_committed consumer that commits nothing."""
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "reconnect.backoff.max.ms": 200,
            "metadata.recovery.strategy": "none",
            "fetch.wait.max.ms": 50,
            "log_level": 2,
        }
    )


def by_confluent(consumer: Consumer, ends: Mapping[Place, int]) -> Records:
    """Returns all records below the ends. The consumer's position only advances with a record, or at
    the end of the stable records."""
    found: Records = {place: [] for place in ends}
    behind = {place for place, end in ends.items() if end > 0}
    in_time = deadline(ends)
    consumer.assign([TopicPartition(*place, OFFSET_BEGINNING) for place in ends])
    while behind:
        in_time(behind)
        for message in consumer.consume(1000, timeout=0.1):
            place, error = (message.topic(), message.partition()), message.error()
            if error is None and message.offset() < ends[place]:
                headers = dict(message.headers() or ())
                found[place].append(seen(message.offset(), message.key(), headers["id"]))
            at_end = error is not None and error.code() == KafkaError._PARTITION_EOF
            if (error is None or at_end) and message.offset() + (not at_end) >= ends[place]:
                behind.discard(place)
    return found


def by_kafka_python(bootstrap: str, ends: Mapping[Place, int]) -> Records:
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap, isolation_level="read_committed", fetch_max_wait_ms=50
    )
    found: Records = {place: [] for place in ends}
    parts = {place: PyTopicPartition(*place) for place in ends}
    in_time = deadline(ends)
    try:
        consumer.assign(list(parts.values()))
        consumer.seek_to_beginning()
        while behind := {at for at, end in ends.items() if consumer.position(parts[at]) < end}:
            in_time(behind)
            for polled in consumer.poll(timeout_ms=100).values():
                keep(found, polled, ends)
    finally:
        consumer.close()
    return found


async def by_aiokafka(bootstrap: str, ends: Mapping[Place, int]) -> Records:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, isolation_level="read_committed", fetch_max_wait_ms=50
    )
    found: Records = {place: [] for place in ends}
    parts = {place: AioTopicPartition(*place) for place in ends}
    in_time = deadline(ends)
    consumer.assign(list(parts.values()))
    await consumer.start()
    try:
        await consumer.seek_to_beginning()
        while behind := {
            at for at, end in ends.items() if await consumer.position(parts[at]) < end
        }:
            in_time(behind)
            for polled in (await consumer.getmany(timeout_ms=100)).values():
                keep(found, polled, ends)
    finally:
        await consumer.stop()
    return found


def keep(found: Records, polled: Iterable[Any], ends: Mapping[Place, int]) -> None:
    """Keep the polled records that are below the ends."""
    for record in polled:
        place = (record.topic, record.partition)
        if record.offset < ends[place]:
            record_id = dict(record.headers)["id"]
            found[place].append(seen(record.offset, record.key, record_id))


def deadline(ends: Mapping[Place, int]) -> Callable[[set[Place]], None]:
    """Returns a check that raises NotRead after the deadline."""
    end_s = time.monotonic() + SECONDS_MAX

    def check(behind: set[Place]) -> None:
        if time.monotonic() > end_s:
            raise NotRead(f"{sorted(behind)} of {dict(ends)}")

    return check


def seen(offset: int, key: bytes, record_id: bytes) -> Seen:
    """Build a record from its bytes; its id is in the header `id`."""
    name, number = record_id.decode().split()
    return Seen(offset, (name, int(number)), key.decode())
