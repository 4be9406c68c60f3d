"""Writes to a compacted topic continuously, across kills of its broker, and tracks what it must
contain."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, Self, TypeAlias

from confluent_kafka import KafkaError, KafkaException, Message, Producer

Written: TypeAlias = tuple[str, int, int, datetime, bytes | None, bytes | None]
"""Topic, partition, offset, timestamp, key, value."""

KEYS = 60
RECORDS_A_ROUND = 25
PAUSE_SECONDS = 0.2
SECONDS_MAX = 60.0


class KeyedWriter:
    """Writes new values and tombstones for few keys, from its own thread.

    Half of them are in transactions, of which a third is aborted.
    """

    def __init__(self, bootstrap: str, topic: str, *, partitions: int, seed: int) -> None:
        # Constant after construction.
        self._topic = topic
        self._partitions = partitions
        self._choices = random.Random(seed)
        self._plain = Producer(settings(bootstrap))
        self._transactional = Producer(settings(bootstrap) | {"transactional.id": topic})
        # State.
        self._number = 0
        self._stopped = threading.Event()
        self._thread = ThreadPoolExecutor(1, "writer")
        self._written: Future[None] | None = None
        self.records: list[Written] = []
        """Acknowledged and, if transactional, committed records; complete after `stop`."""

    def __enter__(self) -> Self:
        self._written = self._thread.submit(self._run)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop writing, and wait for all acknowledgements. Raises the thread's error, if any."""
        self._stopped.set()
        assert self._written is not None
        self._written.result(SECONDS_MAX)

    def _run(self) -> None:
        producer = self._transactional
        insist(producer, lambda: producer.init_transactions(SECONDS_MAX))
        while not self._stopped.wait(PAUSE_SECONDS):
            if self._choices.random() < 0.5:
                self._transaction()
            else:
                self._send_all(self._plain)

    def _transaction(self) -> None:
        """Write one transaction, and commit or abort it."""
        producer, before = self._transactional, len(self.records)
        producer.begin_transaction()
        self._send_all(producer)
        is_committed = self._choices.random() < 0.7
        end = producer.commit_transaction if is_committed else producer.abort_transaction
        if not insist(producer, lambda: end(SECONDS_MAX)) or not is_committed:
            del self.records[before:]

    def _send_all(self, producer: Producer) -> None:
        for _ in range(RECORDS_A_ROUND):
            self._number += 1
            key = b"key-%d" % self._choices.randrange(KEYS)
            value = None if self._choices.random() < 0.2 else b"%d" % self._number
            partition = self._choices.randrange(self._partitions)
            producer.produce(
                self._topic, key=key, value=value, partition=partition, on_delivery=self._delivered
            )
        left = producer.flush(SECONDS_MAX)
        assert left == 0, f"{left} records were not acknowledged in time"

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        _, milliseconds = message.timestamp()
        when = datetime.fromtimestamp(milliseconds / 1000, UTC)
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        self.records.append((self._topic, partition, offset, when, message.key(), message.value()))


def insist(producer: Producer, end: Callable[[], Any]) -> bool:
    """Retry a step of a transaction until it is done. Returns True; False if the transaction was aborted
    because the broker did not know the producer."""
    while True:
        try:
            end()
        except KafkaException as refused:
            error = refused.args[0]
            if error.txn_requires_abort():
                insist(producer, lambda: producer.abort_transaction(SECONDS_MAX))
                return False
            if not error.retriable():
                raise
        else:
            return True


def settings(bootstrap: str) -> dict[str, Any]:
    """Returns the settings of a producer that survives kills and restarts of its broker."""
    return {
        "bootstrap.servers": bootstrap,
        "enable.idempotence": True,
        "linger.ms": 2,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 200,
        "delivery.timeout.ms": int(1000 * SECONDS_MAX),
        "transaction.timeout.ms": int(1000 * SECONDS_MAX),
        "log_level": 0,
    }
