"""SIGKILL under a producer and a cleaner that never rests, over topics that keep older values.

After each restart, and at the end, an acknowledged record is there unless the rule drops it because of
records that are there.
"""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

from cleaner.rules.history import PastRecord, older_values, stays_as_history
from storage.formats.compaction_history import CompactionHistory, parse_thinning
from tests.harness.broker_process import BrokerProcess
from tests.harness.kill_cycles import outliving_kills

KEYS = 200
BATCH = 50
RECORDS_A_LIFE = 4_000
THINNING = "all for 1s, one per 1s for 3s, one per 3s for 9s"
KEPT = {
    "three": {"compaction.versions": "3"},
    "thinned": {"compaction.thinning": THINNING},
}
HISTORIES = {
    "three": CompactionHistory(3),
    "thinned": CompactionHistory(1, parse_thinning(THINNING)),
}
CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": str(1 << 20),
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0",
    "delete.retention.ms": "500",
    "message.timestamp.type": "LogAppendTime",
}
Records = dict[bytes, list[PastRecord]]


class Writer:
    """A producer for both topics. A twentieth of its records are tombstones."""

    def __init__(self, bootstrap: str, choices: random.Random) -> None:
        self.acknowledged: dict[str, Records] = {topic: defaultdict(list) for topic in KEPT}
        self._unanswered_tombstones = Counter[tuple[str, bytes]]()
        self._choices = choices
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "linger.ms": 1,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 50,
                "message.timeout.ms": 120_000,
                "log_level": 0,
            }
        )

    def may_be_deleted(self, topic: str, key: bytes) -> bool:
        """Returns whether the broker may have a tombstone of the key whose acknowledgement was lost."""
        return self._unanswered_tombstones[topic, key] > 0

    def write(self, topic: str, key: bytes, value: bytes | None) -> None:
        self._unanswered_tombstones[topic, key] += value is None
        self._producer.produce(topic, key=key, value=value, on_delivery=self._delivered)

    def write_for(self, seconds: float) -> None:
        ends_at, written = time.monotonic() + seconds, 0
        while time.monotonic() < ends_at:
            for _ in range(BATCH if written < RECORDS_A_LIFE else 0):
                value = None if self._choices.random() < 0.05 else b"." * 100
                key = b"key-%d" % self._choices.randrange(KEYS)
                self.write(self._choices.choice(list(KEPT)), key, value)
                written += 1
            self._producer.poll(0.01)

    def finish(self) -> None:
        for topic in KEPT:
            self.write(topic, b"the last one", b".")
        assert self._producer.flush(60) == 0

    def _delivered(self, error: Any, message: Any) -> None:
        assert error is None, error
        _, timestamp = message.timestamp()
        record = PastRecord(message.offset(), timestamp, message.value() is None)
        self.acknowledged[message.topic()][message.key()].append(record)
        self._unanswered_tombstones[message.topic(), message.key()] -= record.is_tombstone


@pytest.mark.crash
def test_every_value_that_the_rule_keeps_survives_kills_under_load_and_under_cleaning(
    tmp_path: Path,
) -> None:
    topics = {topic: CONFIG | settings for topic, settings in KEPT.items()}
    with outliving_kills(tmp_path, topics, Writer, check) as (broker, writer):
        for records in check(broker, writer)["three"].values():
            assert len(older_values(records, HISTORIES["three"], 0)) == len(records) - 1


def check(broker: BrokerProcess, writer: Writer) -> dict[str, Records]:
    """Read both topics whole, and look for each acknowledged record. Returns what was found."""
    found = {topic: records_of(broker.bootstrap_servers, topic) for topic in KEPT}
    now_ms = int(time.time() * 1000)
    for topic, acknowledged in writer.acknowledged.items():
        for key, records in acknowledged.items():
            if writer.may_be_deleted(topic, key):
                continue  # Before this is read, that tombstone and all before it may be gone.
            left, history = found[topic].get(key, []), HISTORIES[topic]
            ended = max((each.offset for each in records if each.is_tombstone), default=-1)
            for record in set(records) - set(left):
                # Tombstones go after their horizon, and what was before them at once.
                if record.offset > ended:
                    is_last = all(each.offset < record.offset for each in left)
                    assert not is_last, f"{topic}, {key!r}: the last value, {record}, is gone"
                    stays = stays_as_history(record, left, history, now_ms)
                    assert not stays, f"{topic}, {key!r}: {record} is gone; left: {left}"
    return found


def records_of(bootstrap: str, topic: str) -> Records:
    """Returns all records of a topic, by key."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "unused",
        "enable.partition.eof": True,
        "enable.auto.commit": False,
    }
    consumer, found = Consumer(settings), defaultdict[bytes, list[PastRecord]](list)
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        while True:
            message = consumer.poll(30)
            assert message is not None, "no record and no end in 30 s"
            if message.error():
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                return found
            _, timestamp = message.timestamp()
            record = PastRecord(message.offset(), timestamp, message.value() is None)
            found[message.key()].append(record)
    finally:
        consumer.close()
