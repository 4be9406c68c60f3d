"""What the data directory of an earlier release holds: topics of every kind, transactions, groups.

Every client here is a real one, so that the same scene can be written by any release.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "300",
    "min.cleanable.dirty.ratio": "0.01",
}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
KEYS = 40
ACCOUNT_WRITES = 2000
TAIL_WRITES = 100
"""Writes to accounts after the cleaner has cleaned it."""
PENDING_ID = "pending-payments"
CLEANED_SECONDS_MAX = 300.0
PROPERTIES = {
    "log.cleaner.backoff.ms": "200",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
}
"""Properties of the broker that writes the scene, and of the one that reads it."""


def write_scene(bootstrap: str, record_count: Callable[[str], int]) -> Producer:
    """Write the scene. Returns the producer whose transaction is open: keep it until the broker ends.

    Args:
        record_count: returns how many records a reader finds in a topic.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap})
    create_topics(admin)
    for codec in CODECS:
        write_events(bootstrap, codec)
    write_accounts(bootstrap, ACCOUNT_WRITES)
    write_transactions(bootstrap, "payments")
    write_transactions(bootstrap, "transfers")
    pending = begin_pending(bootstrap)
    change_topics(admin)
    commit_offsets(bootstrap, admin)
    deadline = time.monotonic() + CLEANED_SECONDS_MAX
    while record_count("accounts") > ACCOUNT_WRITES // 4:
        assert time.monotonic() < deadline, "the cleaner has not cleaned accounts"
        time.sleep(0.2)
    write_accounts(bootstrap, TAIL_WRITES)
    return pending


def create_topics(admin: AdminClient) -> None:
    topics = [
        NewTopic("accounts", 1, 1, config=COMPACTED),
        NewTopic("events", 2, 1),
        NewTopic("payments", 1, 1, config=COMPACTED),
        NewTopic("transfers", 1, 1),
        NewTopic("pending", 1, 1),
        NewTopic("dropped", 1, 1),
    ]
    for made in admin.create_topics(topics).values():
        made.result(30)


def write_events(bootstrap: str, codec: str) -> None:
    """Add batches of one codec, with headers, empty values and chosen timestamps."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 50}
    )
    for number in range(30):
        producer.produce(
            "events",
            key=f"{codec}-{number}",
            value="" if number % 7 == 0 else "v" * number,
            partition=number % 2,
            timestamp=1_700_000_000_000 + number,
            headers=[("codec", codec.encode()), ("nothing", None)],
        )
    assert producer.flush(30) == 0


def write_accounts(bootstrap: str, writes: int) -> None:
    """Overwrite a few keys many times, and delete some of them, by an idempotent producer."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(writes):
        key, is_deleted = f"account-{number % KEYS}", number % 97 == 0
        producer.produce("accounts", key=key, value=None if is_deleted else f"{number:060}")
        if number % 20 == 19:
            assert producer.flush(30) == 0


def write_transactions(bootstrap: str, topic: str) -> None:
    """Write committed and aborted transactions in turn."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    for number in range(12):
        producer.begin_transaction()
        for each in range(10):
            producer.produce(topic, key=f"payment-{each}", value=f"{number}-{each}" * 8)
        assert producer.flush(30) == 0
        if number % 3 == 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)


def begin_pending(bootstrap: str) -> Producer:
    """Leave a transaction open."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": PENDING_ID})
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(5):
        producer.produce("pending", key=f"pending-{number}", value="never committed")
    assert producer.flush(30) == 0
    return producer


def change_topics(admin: AdminClient) -> None:
    """Grow a topic, change a configuration, delete records and a topic."""
    for grown in admin.create_partitions([NewPartitions("events", 3)]).values():
        grown.result(30)
    entry = ConfigEntry("retention.bytes", "1048576", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, "events", incremental_configs=[entry])
    for altered in admin.incremental_alter_configs([resource]).values():
        altered.result(30)
    for shortened in admin.delete_records([TopicPartition("events", 1, 4)]).values():
        shortened.result(30)
    for dropped in admin.delete_topics(["dropped"]).values():
        dropped.result(30)


def commit_offsets(bootstrap: str, admin: AdminClient) -> None:
    """Commit offsets for a classic group, for one of KIP-848, and for one without members."""
    for group, protocol in (("classic", "classic"), ("consumer", "consumer")):
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe(["accounts"])
        last = None
        deadline = time.monotonic() + 30
        while last is None or last.offset() < 25:
            assert time.monotonic() < deadline, f"group {group} reads nothing"
            last = consumer.poll(1) or last
        consumer.commit(last, asynchronous=False)
        consumer.close()
    offsets = [TopicPartition("events", partition, 3 + partition) for partition in (0, 1)]
    request = ConsumerGroupTopicPartitions("admin-only", offsets)
    for altered in admin.alter_consumer_group_offsets([request]).values():
        altered.result(30)
