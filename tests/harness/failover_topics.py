"""A client that creates topics, deletes them, creates them again, and deletes records."""

from __future__ import annotations

import random
import time
from collections import deque
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.harness.failover_clients import PATIENCE_SECONDS, Client

RECORDS = 3
PAUSE_SECONDS = 0.7


class TopicChurn(Client):
    """Topics that come and go. Each time that a name is used again, the topic gets other records."""

    def __init__(self, servers: str, prefix: str, *, trimmed: str, seed: int) -> None:
        """
        Args:
            trimmed: a topic with one partition, from which records are deleted.
        """
        super().__init__(servers, f"topics {prefix}")
        self.existing: dict[str, list[bytes]] = {}
        """The values of each topic whose creation was acknowledged, and its deletion not tried."""
        self.deleted: set[str] = set()
        self.uncertain: set[str] = set()
        """Names whose last creation or deletion ended with an error."""
        self.trimmed, self.trimmed_start = trimmed, 0
        """Records below this offset are deleted: that was acknowledged."""
        self.trimmed_bound = 0
        """Up to here they may be."""
        self.trimmed_end = 0
        self._prefix = prefix
        self._random = random.Random(seed)
        self._order: deque[str] = deque()
        self._count = 0
        self._failed: list[KafkaError] = []
        self._admin: AdminClient
        self._producer: Producer

    def open(self) -> None:
        self._admin = AdminClient(self._common)
        self._producer = Producer(
            {**self._common, "enable.idempotence": True, "message.timeout.ms": 30_000}
        )

    def step(self) -> bool:
        time.sleep(PAUSE_SECONDS)
        match self._random.choice(("create", "create", "delete", "again", "trim")):
            case "create":
                self._count += 1
                self._create(f"{self._prefix}-{self._count}")
            case "delete" if len(self._order) > 3:
                self._delete(self._order.popleft())
            case "again" if self._order:
                name = self._order.popleft()
                self._delete(name)
                self._create(name)
            case _:
                self._trim()
        return True

    def close(self) -> None:
        self._producer.purge()
        self._producer.flush(1)

    def _create(self, name: str) -> None:
        self._count += 1
        self.uncertain.add(name)
        self.deleted.discard(name)
        created = self._admin.create_topics(
            [NewTopic(name, 2, 1)], request_timeout=PATIENCE_SECONDS
        )
        _result(created[name])
        values = [b"%d-%d" % (self._count, number) for number in range(RECORDS)]
        for value in values:
            self._producer.produce(name, value, partition=1, on_delivery=self._noted)
        self._flush()
        self.existing[name] = values
        self.uncertain.discard(name)
        self._order.append(name)

    def _delete(self, name: str) -> None:
        self.existing.pop(name)
        self.uncertain.add(name)
        _result(self._admin.delete_topics([name], request_timeout=PATIENCE_SECONDS)[name])
        self.uncertain.discard(name)
        self.deleted.add(name)

    def _trim(self) -> None:
        for _ in range(RECORDS):
            self._producer.produce(self.trimmed, b"trimmed", on_delivery=self._delivered)
        self._flush()
        if self.trimmed_end > self.trimmed_start:
            start = self._random.randrange(self.trimmed_start, self.trimmed_end) + 1
            self.trimmed_bound = start
            place = TopicPartition(self.trimmed, 0, start)
            deleted = self._admin.delete_records([place], request_timeout=PATIENCE_SECONDS)
            _result(next(iter(deleted.values())))
            self.trimmed_start = start

    def _delivered(self, error: KafkaError | None, message: Any) -> None:
        self._noted(error, message)
        if error is None:
            self.trimmed_end = max(self.trimmed_end, message.offset() + 1)

    def _noted(self, error: KafkaError | None, _: Any) -> None:
        if error is not None:
            self._failed.append(error)

    def _flush(self) -> None:
        left = self._producer.flush(PATIENCE_SECONDS)
        failed, self._failed = self._failed, []
        if left or failed:
            raise KafkaException(failed[0] if failed else KafkaError(KafkaError._TIMED_OUT))


def _result(future: Future[Any]) -> None:
    future.result(timeout=2 * PATIENCE_SECONDS)
