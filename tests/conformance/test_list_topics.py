"""Every client's way to ask for all topics.

librdkafka writes a null list of topics as four zero bytes where the flexible versions take one, so
its Metadata v9+ request is three bytes longer than its schema; Kafka does not mind.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from tests.harness.clients import Client, create_topic


def test_confluent_kafka_lists_all_topics(bootstrap: str, topic_name: Callable[[str], str]) -> None:
    topic = topic_name("listed")
    create_topic(bootstrap, topic, partitions=3)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})

    try:
        by_consumer = consumer.list_topics(timeout=10).topics
    finally:
        consumer.close()
    by_admin = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=10).topics

    assert sorted(by_consumer[topic].partitions) == [0, 1, 2]
    assert sorted(by_admin[topic].partitions) == [0, 1, 2]


def test_kcat_lists_all_topics(
    bootstrap: str, topic_name: Callable[[str], str], clients: Mapping[str, Client]
) -> None:
    topic = topic_name("listed")
    create_topic(bootstrap, topic, partitions=3)

    said = subprocess.run(["kcat", "-L", "-b", bootstrap], capture_output=True, check=True)

    assert f'topic "{topic}" with 3 partitions' in said.stdout.decode()
