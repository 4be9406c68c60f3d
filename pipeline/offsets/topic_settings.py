"""Reads a topic's settings from a broker, with the Kafka client in Spark's Kafka source."""

from __future__ import annotations

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from pipeline.offsets.kafka_offsets import admin_client
from pipeline.offsets.kafka_source import KafkaSource


def topic_setting(session: SparkSession, source: KafkaSource, topic: str, name: str) -> str | None:
    """Returns the topic's current value of a setting; None if the broker does not report it."""
    jvm = session.sparkContext._jvm
    config = jvm.org.apache.kafka.common.config.ConfigResource
    resource = config(config.Type.TOPIC, topic)
    try:
        with admin_client(jvm, source) as admin:
            found = admin.describeConfigs([resource]).all().get().get(resource).get(name)
    except Py4JJavaError:
        return None
    return None if found is None else str(found.value())
