"""Reads settings of topics from a broker, with the Kafka client in Spark's Kafka source."""

from __future__ import annotations

from collections.abc import Mapping

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from pipeline.offsets.cut import TableRefused
from pipeline.offsets.kafka_offsets import admin_client, reason_of
from pipeline.offsets.kafka_source import KafkaSource
from storage.formats.compaction_strategy import (
    STRATEGY,
    STRATEGY_PROPERTIES,
    CompactionStrategy,
    strategy_from,
)


def topic_setting(session: SparkSession, source: KafkaSource, topic: str, name: str) -> str | None:
    """Returns the topic's current value of a setting; None if the broker does not report it."""
    try:
        return topic_settings(session, source, (topic,), (name,))[topic].get(name)
    except Py4JJavaError:
        return None


def topic_strategies(session: SparkSession, source: KafkaSource) -> dict[str, CompactionStrategy]:
    """Returns which record of a key is the last one, for each of the source's topics.

    A broker that has no such property, like Apache Kafka's, ranks by offset.

    Raises:
        TableRefused: the broker does not report the settings, or a topic has a strategy of a later
            release.
    """
    try:
        settings = topic_settings(session, source, source.topics, STRATEGY_PROPERTIES)
    except Py4JJavaError as error:
        raise TableRefused(
            f"cannot read the configuration of {', '.join(source.topics)}, which says by {STRATEGY}"
            " what a key's last record is (a user needs DescribeConfigs on the"
            f" topics): {reason_of(error.java_exception)}"
        ) from error
    return {topic: strategy_of(topic, settings[topic]) for topic in source.topics}


def strategy_of(topic: str, settings: Mapping[str, str]) -> CompactionStrategy:
    """Returns the strategy that a topic's settings name. Raises TableRefused."""
    try:
        return strategy_from(settings)
    except ValueError as error:
        raise TableRefused(
            f"{topic} has {STRATEGY}={settings[STRATEGY]}, which this release does not know"
        ) from error


def topic_settings(
    session: SparkSession, source: KafkaSource, topics: tuple[str, ...], names: tuple[str, ...]
) -> dict[str, dict[str, str]]:
    """Returns those of the named settings that the broker reports for each topic.

    Raises:
        Py4JJavaError: the broker does not answer, or denies it.
    """
    jvm = session.sparkContext._jvm
    config = jvm.org.apache.kafka.common.config.ConfigResource
    resources = {topic: config(config.Type.TOPIC, topic) for topic in topics}
    with admin_client(jvm, source) as admin:
        found = admin.describeConfigs(list(resources.values())).all().get()
    return {
        topic: {
            name: str(entry.value())
            for name in names
            if (entry := found.get(resource).get(name)) is not None
        }
        for topic, resource in resources.items()
    }
