"""`__consumer_offsets` as Kafka's own formatters read it."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from pipeline.spark.jars import JarsUnavailable
from server.coordination.coordinator_topic import java_abs, java_hash
from tests.harness.clients import create_topic
from tests.harness.kafka_tools import KafkaTools

OFFSETS_PARTITIONS = 50


def test_the_formatter_of_committed_offsets_shows_what_a_client_has_committed(
    bootstrap: str,
) -> None:
    topic, group = (f"{word}-{uuid.uuid4().hex[:8]}" for word in ("orders", "readers"))
    create_topic(bootstrap, topic, partitions=2)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    committed = TopicPartition(topic, 1, 42, metadata="note")
    consumer.commit(offsets=[committed], asynchronous=False)
    consumer.close()

    shown = [line for line in formatted(bootstrap, group) if line["key"]["data"]["group"] == group]

    assert [(each["key"]["data"]["topic"], each["key"]["data"]["partition"]) for each in shown] == [
        (topic, 1)
    ]
    value = shown[0]["value"]["data"]
    # confluent-kafka sends the end of C's string with it.
    assert (value["offset"], str(value["metadata"]).rstrip("\0")) == (42, "note")
    assert (shown[0]["key"]["type"], shown[0]["value"]["version"]) == (1, 4)


def formatted(bootstrap: str, group: str) -> list[dict[str, Any]]:
    """What Kafka's formatter makes of the partition that a group is in."""
    try:
        running = KafkaTools(bootstrap)
    except JarsUnavailable as missing:
        pytest.skip(str(missing))
    formatter = "org.apache.kafka.tools.consumer.OffsetsMessageFormatter"
    partition = java_abs(java_hash(group)) % OFFSETS_PARTITIONS
    place = ("--topic", "__consumer_offsets", "--partition", str(partition), "--offset", "earliest")
    with running as tools:
        ran = tools.run(
            "kafka-console-consumer", *place, "--formatter", formatter, "--timeout-ms", "3000"
        )
    return [json.loads(line) for line in ran.output.splitlines() if line.startswith("{")]
