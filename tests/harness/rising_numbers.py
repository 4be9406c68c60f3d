"""Writers of rising numbers to few keys, whose readers know what they may not miss.

`PLAIN` gets records with acks=all, `EXACT` transactions, of which some are aborted.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Producer

from tests.harness.keyed_writer import insist, settings

KEYS = 40
BATCH = 20
PLAIN, EXACT = "plain", "exact"


class RisingNumbers:
    """The writers, and threads that read; a subclass says how.

    For `outliving_kills`.
    """

    def __init__(self, bootstrap: str, choices: random.Random) -> None:
        self._choices = choices
        self._plain = Producer(settings(bootstrap) | {"acks": "all"})
        self._exact = Producer(settings(bootstrap) | {"transactional.id": "exact"})
        self._number = 0
        self.aborted: set[int] = set()
        self.known: dict[str, dict[bytes, int]] = {PLAIN: {}, EXACT: {}}
        """By topic and key, the number below which no reader may find the key's last value. Of `EXACT`
        it is that of the transactions before the last one, whose marker may still be on its way."""
        self._last_transaction: dict[bytes, int] = {}
        self.faults: list[str] = []
        """What readers should not have found."""
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

    def start_to_read(self) -> None:
        """Start the readers, unless they read already."""
        if not self._readers[0].is_alive():
            for reader in self._readers:
                reader.start()

    def read(self, topic: str) -> None:
        """Read a topic once, and add what is wrong to `faults`."""
        raise NotImplementedError

    def check(self, topic: str, key: bytes, number: int, least: int) -> None:
        """Note if a number may not be a key's last value: it is older than `least`, or was aborted."""
        if number < least:
            self.faults.append(f"{topic} {key!r}: {number}, although {least} was acknowledged")
        if topic == EXACT and number in self.aborted:
            self.faults.append(f"{topic} {key!r}: {number} of an aborted transaction")

    def _read(self, topic: str) -> None:
        while not self._stopped.is_set():
            self.read(topic)

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
