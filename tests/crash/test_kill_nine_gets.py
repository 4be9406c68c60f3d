"""SIGKILL under producers and readers of single keys: no get returns what is older than acknowledged.

Of the topic `plain` a get returns the value that was acknowledged with acks=all before it was asked, or
a later one that was sent. Of `exact` it never returns a value of an aborted transaction, nor one that is
older than the transactions before the last one: the last one's marker may follow its answer.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.harness.broker_process import BrokerProcess
from tests.harness.keyed_writer import insist, settings
from tests.harness.kill_cycles import outliving_kills

KEYS = 40
BATCH = 20
PLAIN, EXACT = "plain", "exact"
CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": str(1 << 20),
    "segment.ms": "200",
    "min.cleanable.dirty.ratio": "0",
}


class WritersAndReaders:
    """Producers of rising numbers, and a thread that gets keys and compares."""

    def __init__(self, bootstrap: str, choices: random.Random) -> None:
        self._choices = choices
        self._plain = Producer(settings(bootstrap) | {"acks": "all"})
        self._exact = Producer(settings(bootstrap) | {"transactional.id": "exact"})
        self._number = 0
        self.aborted: set[int] = set()
        self.known: dict[str, dict[bytes, int]] = {PLAIN: {}, EXACT: {}}
        """By topic and key, the number below which no get may answer."""
        self._last_transaction: dict[bytes, int] = {}
        self.faults: list[str] = []
        self.answers = 0
        self.http_port = 0
        self._stopped = threading.Event()
        self._readers = [threading.Thread(target=self._read, args=(topic,)) for topic in self.known]

    def write_for(self, seconds: float) -> None:
        if self._number == 0:
            insist(self._exact, lambda: self._exact.init_transactions(60))
        ends_at = time.monotonic() + seconds
        while time.monotonic() < ends_at:
            for _ in range(BATCH):
                self._send(self._plain, PLAIN, self._acknowledged)
            self._plain.poll(0)
            self._transaction()

    def finish(self) -> None:
        self.write_for(0.1)
        assert self._plain.flush(60) == 0
        self._stopped.set()
        for reader in self._readers:
            reader.join()

    def read_at(self, http_port: int) -> None:
        self.http_port = http_port
        if not self._readers[0].is_alive():
            for reader in self._readers:
                reader.start()

    def _send(
        self, producer: Producer, topic: str, delivered: Callable[[Any, Any], None]
    ) -> tuple[bytes, int]:
        self._number += 1
        key = b"key-%d" % self._choices.randrange(KEYS)
        producer.produce(topic, key=key, value=b"%d" % self._number, on_delivery=delivered)
        return key, self._number

    def _acknowledged(self, error: Any, message: Any) -> None:
        assert error is None, error
        known = self.known[PLAIN]
        known[message.key()] = max(known.get(message.key(), 0), int(message.value()))

    def _transaction(self) -> None:
        producer = self._exact
        self.known[EXACT] |= self._last_transaction
        producer.begin_transaction()
        is_committed = self._choices.random() < 0.6
        sent = [self._send(producer, EXACT, lambda error, _: None) for _ in range(BATCH)]
        if not is_committed:
            self.aborted |= {number for _, number in sent}
        end = producer.commit_transaction if is_committed else producer.abort_transaction
        if insist(producer, lambda: end(60)) and is_committed:
            self._last_transaction = dict(sent)
        else:
            self._last_transaction = {}
            self.aborted |= {number for _, number in sent}

    # ---------------------------------------------------------------- readers

    def _read(self, topic: str) -> None:
        choices = random.Random(topic)
        while not self._stopped.is_set():
            key = b"key-%d" % choices.randrange(KEYS)
            least = self.known[topic].get(key, 0)
            number = self._get(topic, key.decode())
            if number is None:
                continue
            self.answers += 1
            if number < least:
                self.faults.append(f"{topic} {key!r}: {number}, although {least} was acknowledged")
            if topic == EXACT and number in self.aborted:
                self.faults.append(f"{topic} {key!r}: {number} of an aborted transaction")

    def _get(self, topic: str, key: str) -> int | None:
        """Returns the number that a get returns, 0 for a miss; None if the broker does not answer."""
        connection = HTTPConnection("127.0.0.1", self.http_port, timeout=30)
        try:
            connection.request("GET", f"/v1/topics/{topic}/keys/{key}")
            response = connection.getresponse()
            answer = json.loads(response.read())
        except (OSError, HTTPException, ValueError):
            return None
        finally:
            connection.close()
        if response.status == 503 or answer.get("code") == "unknown_topic":
            return None  # It starts.
        if response.status == 404:
            return 0
        assert response.status == 200, answer
        return int(answer["value"])


def check(broker: BrokerProcess, both: WritersAndReaders) -> None:
    both.read_at(broker.http_port)
    assert not both.faults, both.faults[:5]


@pytest.mark.crash
def test_no_get_returns_what_is_older_than_acknowledged_or_was_aborted(tmp_path: Path) -> None:
    topics = {PLAIN: CONFIG, EXACT: CONFIG}
    with outliving_kills(tmp_path, topics, WritersAndReaders, check) as (_, both):
        assert not both.faults, both.faults[:5]
        assert both.answers > 100
