"""Prepares a topic for a load: it exists, it is compacted, and no other load writes to it."""

from __future__ import annotations

import re

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from pipeline.load.transaction import task_prefix
from pipeline.offsets.cut import TableRefused
from pipeline.offsets.kafka_offsets import admin_client, refused
from pipeline.offsets.kafka_source import KafkaSource
from pipeline.offsets.topic_settings import topic_setting, topic_strategies
from storage.formats.compaction_strategy import Ranking

CREATED = {"cleanup.policy": "compact"}


def exists(session: SparkSession, source: KafkaSource) -> bool:
    """Returns whether the source's topic exists. Raises TableRefused."""
    (topic,) = source.topics
    try:
        with admin_client(session.sparkContext._jvm, source) as admin:
            return topic in admin.listTopics().names().get()
    except Py4JJavaError as error:
        raise refused(source, error) from error


def create(session: SparkSession, source: KafkaSource, partitions: int) -> None:
    """Create the source's topic, compacted, unless it exists. Raises TableRefused."""
    if exists(session, source):
        return
    jvm = session.sparkContext._jvm
    (topic,) = source.topics
    try:
        with admin_client(jvm, source) as admin:
            wanted = jvm.org.apache.kafka.clients.admin.NewTopic(
                topic, jvm.java.util.Optional.of(partitions), jvm.java.util.Optional.empty()
            ).configs(CREATED)
            admin.createTopics([wanted]).all().get()
    except Py4JJavaError as error:
        raise refused(source, error) from error


def refuse_unfit(session: SparkSession, source: KafkaSource) -> None:
    """Raise TableRefused if the source's topic would not keep what a load writes."""
    (topic,) = source.topics
    policy = topic_setting(session, source, topic, "cleanup.policy")
    if policy is not None and "compact" not in policy.split(","):
        raise TableRefused(
            f"{topic} has cleanup.policy={policy}, so it would lose what is loaded: a load needs a"
            " compacted topic"
        )
    strategy = topic_strategies(session, source)[topic]
    if strategy.ranking is Ranking.HEADER:
        raise TableRefused(
            f"{topic} has compaction.strategy={strategy}, and the records of a load have no headers"
        )


def end_earlier_loads(session: SparkSession, source: KafkaSource) -> None:
    """Fence the producers of all earlier loads of the topic, so that none commits from now on.

    Raises:
        TableRefused: the broker refuses, or does not answer.
    """
    (topic,) = source.topics
    of_a_load = re.compile(re.escape(task_prefix(topic)) + r"\d+")
    try:
        with admin_client(session.sparkContext._jvm, source) as admin:
            found = admin.listTransactions().all().get()
            names = [str(each.transactionalId()) for each in found]
            earlier = [name for name in names if of_a_load.fullmatch(name)]
            if earlier:
                admin.fenceProducers(earlier).all().get()
    except Py4JJavaError as error:
        raise refused(source, error) from error
