"""confluent-kafka as a client for `transaction_program.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.harness.transaction_history import Place
from tests.harness.transaction_program import SESSION_TIMEOUT_MS, Input, Settings

SECONDS_MAX = 20.0
TRIES_MAX = 20


class ConfluentProgram:
    """A producer and, with inputs, a consumer."""

    def __init__(self, settings: Settings) -> None:
        common = {
            "bootstrap.servers": settings.bootstrap,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "retry.backoff.ms": 20,
            # By default it forgets the only broker whenever that is down, and sometimes waits
            # forever for the coordinator that it knew (librdkafka 2.16).
            "metadata.recovery.strategy": "none",
            "log_level": 2,
        }
        self._settings = settings
        self._offsets: list[int] = []
        self._refused: list[str] = []
        self._producer = Producer(
            {
                **common,
                "transactional.id": settings.transactional_id,
                "transaction.timeout.ms": settings.timeout_ms,
                "linger.ms": 1,
            }
        )
        patiently(self._producer.init_transactions)
        self._consumer = self._consuming(common) if settings.inputs else None

    def _consuming(self, common: Mapping[str, Any]) -> Consumer:
        settings = self._settings
        consumer = Consumer(
            {
                **common,
                "group.id": settings.group,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": SESSION_TIMEOUT_MS,
                "heartbeat.interval.ms": 500,
                "fetch.wait.max.ms": 100,
            }
        )
        if settings.is_member:
            consumer.subscribe(sorted({topic for topic, _ in settings.inputs}))
        else:
            consumer.assign([TopicPartition(*place) for place in settings.inputs])
        return consumer

    def poll(self) -> list[Input]:
        assert self._consumer is not None
        records = self._consumer.consume(self._settings.records_max, 0.2)
        return [
            Input((each.topic(), each.partition()), each.offset(), each.key())
            for each in records
            if each.error() is None
        ]

    def begin(self) -> None:
        self._offsets, self._refused = [], []
        self._producer.begin_transaction()

    def send(self, place: Place, key: bytes, value: bytes | None, record_id: bytes) -> None:
        self._offsets.append(-1)
        self._producer.produce(
            place[0],
            partition=place[1],
            key=key,
            value=value,
            headers={"id": record_id},
            on_delivery=partial(self._told, self._offsets, len(self._offsets) - 1),
        )
        self._producer.poll(0)

    def _told(self, offsets: list[int], number: int, error: Any, message: Any) -> None:
        """Record a delivery report; reports of an aborted transaction may arrive during the next one."""
        if error is None:
            offsets[number] = -1 if message.offset() is None else message.offset()
        elif offsets is self._offsets:
            self._refused.append(str(error))

    def delivered(self) -> list[int]:
        left = self._producer.flush(SECONDS_MAX)
        if left or self._refused:
            raise RuntimeError(f"{left} are not delivered; {self._refused[:1]}")
        return self._offsets

    def send_offsets(self, offsets: Mapping[Place, int]) -> None:
        assert self._consumer is not None
        metadata = self._consumer.consumer_group_metadata()
        parts = [TopicPartition(*place, offset) for place, offset in offsets.items()]
        patiently(partial(self._producer.send_offsets_to_transaction, parts, metadata))

    def commit(self) -> None:
        patiently(self._producer.commit_transaction)

    def abort(self) -> None:
        patiently(self._producer.abort_transaction)

    def rewind(self) -> None:
        if self._consumer is not None:
            for part in self._consumer.committed(self._consumer.assignment(), SECONDS_MAX):
                self._consumer.seek(TopicPartition(part.topic, part.partition, max(part.offset, 0)))

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()


def patiently(call: Callable[[float], None]) -> None:
    """Repeat a call while the library says that it may be retried."""
    for tries in range(TRIES_MAX):
        try:
            return call(SECONDS_MAX)
        except KafkaException as error:
            if not error.args[0].retriable() or tries == TRIES_MAX - 1:
                raise
    return None
