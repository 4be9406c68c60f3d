"""Fills topics of a real broker for the cleaner: few keys, tombstones, five codecs, transactions."""

from __future__ import annotations

import time
from collections.abc import Sequence
from random import Random

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.harness.broker_process import BrokerProcess
from tests.harness.clients import deliver_all

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
REMOTE = {"log.cleaner.remote.enable": "true", "log.cleaner.index.ahead.enable": "false"}
"""The broker's properties; only passes make key sidecars."""
KEYS = 60
MINE = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "1.0",
    "internal.segment.bytes": "65536",
    "compaction.idle.roll.ms": "3600000",
}
"""The configuration of a topic that the broker cleans only on request."""


def fill(broker: BrokerProcess, topic: str, random: Random, *, codecs: Sequence[str]) -> None:
    """Write records of few keys, a tenth of them tombstones, in each codec."""
    for codec in codecs:
        producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "compression.type": codec,
                "linger.ms": 20,
                "batch.num.messages": 50,
            }
        )
        deliver_all(producer, topic, [pair(random) for _ in range(600)])


def fill_with_transactions(broker: BrokerProcess, topic: str, random: Random) -> None:
    """Write with two producers in turn, and abort a third of their transactions."""
    producers = [
        Producer(
            {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": f"{topic}-{number}"}
        )
        for number in range(2)
    ]
    for producer in producers:
        producer.init_transactions(20)
    for number in range(20):
        producer = producers[number % 2]
        producer.begin_transaction()
        deliver_all(producer, topic, [pair(random) for _ in range(60)])
        if number % 3 == 0:
            producer.abort_transaction(20)
        else:
            producer.commit_transaction(20)
    until_decided(broker, topic)


def until_decided(broker: BrokerProcess, topic: str) -> None:
    """Wait for the last transaction's markers, which are written after its answer."""
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "ends"}
    stable, all_of_it = (
        Consumer({**settings, "isolation.level": level})
        for level in ("read_committed", "read_uncommitted")
    )
    for number in range(2):
        part = TopicPartition(topic, number)
        _, end = all_of_it.get_watermark_offsets(part, timeout=20)
        while stable.get_watermark_offsets(part, timeout=20)[1] < end:
            time.sleep(0.01)
    stable.close()
    all_of_it.close()


def pair(random: Random) -> tuple[bytes, bytes | None]:
    key = b"%d" % random.randrange(KEYS)
    return key, None if random.random() < 0.1 else random.randbytes(20) + bytes(80)
