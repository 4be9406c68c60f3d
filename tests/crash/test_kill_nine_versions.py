"""SIGKILL under producers whose records come out of order, and under a cleaner that never rests.

Two topics rank records by a header and by timestamp. After each restart, and at the end, each key has
the acknowledged record with the highest version, or one that outranks it and was sent.
"""

from __future__ import annotations

import random
import struct
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.harness.broker_process import BrokerProcess
from tests.harness.clients import ConfluentClient
from tests.harness.kill_cycles import outliving_kills

KEYS = 300
BATCH = 50
RECORDS_A_LIFE = 4_000
START_MS = 1_700_000_000_000
RANKED = {
    "by-header": {"compaction.strategy": "header", "compaction.strategy.header": "version"},
    "by-timestamp": {"compaction.strategy": "timestamp"},
}
CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": str(1 << 20),
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0",
}
Rank = tuple[int, int]


@dataclass(slots=True)
class History:
    """The acknowledged and the sent records of one topic."""

    acknowledged: dict[bytes, Rank] = field(default_factory=dict)
    """The highest rank of each key."""
    sent: set[tuple[bytes, int]] = field(default_factory=set)
    """Keys and versions."""

    def check(self, found: dict[bytes, Rank]) -> None:
        for key, rank in self.acknowledged.items():
            assert key in found, f"{key!r} is gone, its last version was {rank}"
            assert found[key] >= rank, f"{key!r} is {found[key]}, acknowledged was {rank}"
        for key, (version, _) in found.items():
            assert (key, version) in self.sent


class Writers:
    """One producer for both topics; the versions of a key rise, but a tenth come late."""

    def __init__(self, bootstrap: str, choices: random.Random) -> None:
        self.histories = {topic: History() for topic in RANKED}
        self._choices = choices
        self._sent = 0
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

    def write(self, topic: str) -> None:
        self._sent += 1
        late = self._choices.randrange(2_000) if self._choices.random() < 0.1 else 0
        self._write(topic, b"key-%d" % self._choices.randrange(KEYS), max(self._sent - late, 0))

    def _write(self, topic: str, key: bytes, version: int) -> None:
        self.histories[topic].sent.add((key, version))
        self._producer.produce(
            topic,
            key=key,
            value=b"%d " % version + b"." * 100,
            timestamp=START_MS + version,
            headers=[("version", struct.pack(">q", version))],
            on_delivery=self._delivered,
        )

    def write_for(self, seconds: float) -> None:
        ends_at, written = time.monotonic() + seconds, 0
        while time.monotonic() < ends_at:
            for _ in range(BATCH if written < RECORDS_A_LIFE else 0):
                self.write(self._choices.choice(list(RANKED)))
                written += 1
            self._producer.poll(0.01)

    def finish(self) -> None:
        assert self._producer.flush(60) == 0
        for topic in self.histories:
            # A topic whose last record has lost is not clean up to its end.
            self._write(topic, b"the last one", self._sent)
        assert self._producer.flush(60) == 0

    def _delivered(self, error: Any, message: Any) -> None:
        assert error is None, error
        version = int(message.value().split()[0])
        known = self.histories[message.topic()].acknowledged
        rank = version, message.offset()
        known[message.key()] = max(known.get(message.key(), rank), rank)


@pytest.mark.crash
def test_the_highest_version_of_each_key_survives_kills_under_load_and_under_cleaning(
    tmp_path: Path,
) -> None:
    topics = {topic: CONFIG | strategy for topic, strategy in RANKED.items()}
    with outliving_kills(tmp_path, topics, Writers, check) as (broker, writers):
        records = check(broker, writers)
        assert records < KEYS * len(RANKED) * 3, "the cleaner has kept too much"
        text = broker.metrics()
        outranked = [line for line in text.splitlines() if "outranked_records_total " in line]
        assert float(outranked[-1].split()[-1]) > 0


def check(broker: BrokerProcess, writers: Writers) -> int:
    """Read both topics whole, and compare the last values. Returns the number of records."""
    best: dict[str, dict[bytes, Rank]] = {topic: {} for topic in RANKED}
    count = 0
    for topic, _, offset, key, value in ConfluentClient().consume(
        broker.bootstrap_servers, tuple(RANKED)
    ):
        assert key is not None
        assert value is not None
        rank = int(value.split()[0]), offset
        best[topic][key] = max(best[topic].get(key, rank), rank)
        count += 1
    for topic, history in writers.histories.items():
        history.check(best[topic])
    return count
