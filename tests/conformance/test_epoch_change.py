"""Consumers that outlive their broker: a restart is a new leader epoch, and nothing is reset (KIP-320).

Both clients ask OffsetForLeaderEpoch whether what they have read is still the log's. A wrong answer
would make them report a truncation, because they are configured never to reset their position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.harness.broker_process import BrokerProcess, samples
from tests.harness.clients import ConfluentClient, create_topic, deadline_of
from tests.harness.java_client import JavaClient

BATCH = [(b"key", b"value")] * 10
TOPIC = "epochs"


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path) as process:
        create_topic(process.bootstrap_servers, TOPIC)
        produce(process)
        yield process


def produce(broker: BrokerProcess) -> None:
    ConfluentClient().produce(broker.bootstrap_servers, {TOPIC: "none"}, BATCH)


def questions(broker: BrokerProcess) -> float:
    """How many OffsetForLeaderEpoch requests were answered since the start."""
    found = samples(broker.metrics(), "kompakt_request_seconds_count", api="OffsetForLeaderEpoch")
    return sum(found)


def crash(broker: BrokerProcess) -> None:
    broker.kill()
    broker.start()


@pytest.mark.parametrize("start_again", [BrokerProcess.restart, crash], ids=["stop", "crash"])
def test_librdkafka_goes_on_where_it_was(
    own_broker: BrokerProcess, start_again: Callable[[BrokerProcess], None]
) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": own_broker.bootstrap_servers,
            "group.id": "unused: partitions are assigned",
            "auto.offset.reset": "error",
            "reconnect.backoff.max.ms": 200,
        }
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    try:
        assert offsets_read(consumer, len(BATCH)) == list(range(10))
        start_again(own_broker)
        produce(own_broker)
        assert offsets_read(consumer, len(BATCH)) == list(range(10, 20))
    finally:
        consumer.close()
    assert questions(own_broker) >= 1


def offsets_read(consumer: Consumer, count: int) -> list[int]:
    """The next offsets; that the broker is away for a while is no error."""
    deadline = deadline_of("confluent-kafka")
    offsets: list[int] = []
    while len(offsets) < count:
        deadline()
        message = consumer.poll(0.2)
        if message is None:
            continue
        error = message.error()
        if error is None:
            offsets.append(message.offset() or 0)
        else:
            assert error.code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN), error
    return offsets


def test_java_goes_on_where_it_was(own_broker: BrokerProcess, java: JavaClient) -> None:
    with java.follow(own_broker.bootstrap_servers, TOPIC, 2 * len(BATCH)) as consumer:
        assert consumer.stdout is not None
        assert offsets_printed(consumer.stdout, len(BATCH)) == list(range(10))
        own_broker.restart()
        produce(own_broker)
        assert offsets_printed(consumer.stdout, len(BATCH)) == list(range(10, 20))
        assert consumer.wait(timeout=30) == 0
    assert questions(own_broker) >= 1


def offsets_printed(lines: IO[str], count: int) -> list[int]:
    return [int(lines.readline() or -1) for _ in range(count)]
