"""Requests the offsets of a cut from a broker, with the Kafka client in Spark's Kafka source.

So the options with which the source reaches the broker (security, listeners) also work here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from pipeline.offsets.cut import Offsets, TableRefused, TopicOffsets
from pipeline.offsets.kafka_source import KafkaSource


def ask_offsets(session: SparkSession, source: KafkaSource) -> TopicOffsets:
    """Returns the current ids, first and end offsets of the source's topics.

    The end is the last stable offset if the source reads only committed records.

    Raises:
        TableRefused: a topic does not exist, or the broker does not answer; the message says which.
    """
    jvm = session.sparkContext._jvm
    try:
        with admin_client(jvm, source) as admin:
            topics = describe(admin, source.topics)
            partitions = {
                name: [part.partition() for part in topic.partitions()]
                for name, topic in topics.items()
            }
            return TopicOffsets(
                {name: str(topic.topicId().toString()) for name, topic in topics.items()},
                list_offsets(jvm, admin, source, partitions, "earliest"),
                list_offsets(jvm, admin, source, partitions, "latest"),
            )
    except Py4JJavaError as error:
        raise refused(source, error) from error


@contextlib.contextmanager
def admin_client(jvm: Any, source: KafkaSource) -> Iterator[Any]:
    properties = jvm.java.util.Properties()
    for name, value in source.client_properties().items():
        properties.setProperty(name, value)
    admin = jvm.org.apache.kafka.clients.admin.Admin.create(properties)
    try:
        yield admin
    finally:
        admin.close()


def describe(admin: Any, topics: tuple[str, ...]) -> dict[str, Any]:
    """Returns Kafka's description of each topic."""
    found = admin.describeTopics(list(topics)).allTopicNames().get()
    return {name: found[name] for name in topics}


def list_offsets(
    jvm: Any, admin: Any, source: KafkaSource, partitions: dict[str, list[int]], which: str
) -> Offsets:
    """Returns offsets by partition. `which` is a method of Kafka's OffsetSpec: earliest or latest."""
    kafka = jvm.org.apache.kafka
    level = source.client_properties()["isolation.level"].upper()
    options = kafka.clients.admin.ListOffsetsOptions(kafka.common.IsolationLevel.valueOf(level))
    asked = {
        (topic, number): kafka.common.TopicPartition(topic, number)
        for topic, numbers in partitions.items()
        for number in numbers
    }
    wanted = jvm.java.util.HashMap()
    for part in asked.values():
        wanted.put(part, getattr(kafka.clients.admin.OffsetSpec, which)())
    answer = admin.listOffsets(wanted, options).all().get()
    found: dict[str, dict[int, int]] = {topic: {} for topic in partitions}
    for (topic, number), part in asked.items():
        found[topic][number] = answer.get(part).offset()
    return found


def reason_of(error: Any) -> str:
    """Returns the message of Kafka's client, without the exceptions around it."""
    while error.getCause() is not None:
        error = error.getCause()
    return f"{error.getClass().getSimpleName()}: {error.getMessage()}"


def refused(source: KafkaSource, error: Py4JJavaError) -> TableRefused:
    """Returns the refusal for an error of Kafka's client, in one sentence."""
    names = ", ".join(source.topics)
    return TableRefused(f"{names} at {source.bootstrap_servers}: {reason_of(error.java_exception)}")
