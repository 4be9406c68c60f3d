"""What clients find on a broker, as JSON: records, offsets of groups, configurations."""

from __future__ import annotations

from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, ResourceType

TOPICS = ("accounts", "events", "payments", "pending", "transfers")
GROUPS = ("classic", "consumer", "admin-only")
ISOLATIONS = ("read_committed", "read_uncommitted")
SECONDS_MAX = 30.0


def account_of(bootstrap: str) -> dict[str, Any]:
    """Returns all that the clients of a user see of the scene."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    return {
        "topics": sorted(name for name in admin.list_topics(timeout=30).topics if name[0] != "_"),
        "records": {
            topic: {isolation: records_of(bootstrap, topic, isolation) for isolation in ISOLATIONS}
            for topic in TOPICS
        },
        "configs": {topic: configs_of(admin, topic) for topic in TOPICS},
        "groups": {group: offsets_of(admin, group) for group in GROUPS},
    }


def records_of(bootstrap: str, topic: str, isolation: str) -> dict[str, Any]:
    """Returns each partition's first offset and records."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused: partitions are assigned",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
        }
    )
    try:
        partitions = sorted(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
        return {str(each): partition_of(consumer, topic, each) for each in partitions}
    finally:
        consumer.close()


def partition_of(consumer: Consumer, topic: str, partition: int) -> dict[str, Any]:
    place = TopicPartition(topic, partition, OFFSET_BEGINNING)
    start, _ = consumer.get_watermark_offsets(place, timeout=SECONDS_MAX)
    consumer.assign([place])
    records: list[list[Any]] = []
    while True:
        message = consumer.poll(SECONDS_MAX)
        assert message is not None, f"{topic}-{partition} does not end"
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            return {"start": start, "records": records}
        records.append(record_of(message))


def record_of(message: Message) -> list[Any]:
    headers = [[name, text(value)] for name, value in message.headers() or []]
    return [
        message.offset(),
        message.timestamp()[1],
        text(message.key()),
        text(message.value()),
        headers,
    ]


def text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


def configs_of(admin: AdminClient, topic: str) -> dict[str, str]:
    """Returns the configurations that were set for this topic."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    entries = admin.describe_configs([resource])[resource].result(SECONDS_MAX)
    dynamic = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    return {name: each.value for name, each in entries.items() if each.source == dynamic}


def offsets_of(admin: AdminClient, group: str) -> dict[str, int]:
    request = ConsumerGroupTopicPartitions(group)
    found = admin.list_consumer_group_offsets([request])[group].result(SECONDS_MAX)
    return {f"{each.topic}-{each.partition}": each.offset for each in found.topic_partitions}


def records_found(bootstrap: str, topic: str) -> int:
    """Returns how many records a reader finds in a topic."""
    found = records_of(bootstrap, topic, "read_uncommitted")
    return sum(len(partition["records"]) for partition in found.values())
