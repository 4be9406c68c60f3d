"""kafka-python as a client for `transaction_program.py`."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition

from cli.consume.records import JOIN_MS
from tests.harness.transaction_history import Place
from tests.harness.transaction_program import SESSION_TIMEOUT_MS, Input, Settings

SECONDS_MAX = 20


class KafkaPythonProgram:
    """A producer and, with inputs, a consumer."""

    def __init__(self, settings: Settings) -> None:
        common = {
            "bootstrap_servers": settings.bootstrap,
            "reconnect_backoff_ms": 20,
            "reconnect_backoff_max_ms": 200,
            "retry_backoff_ms": 20,
        }
        self._settings = settings
        self._sent: list[Any] = []
        self._producer = KafkaProducer(
            **common,
            transactional_id=settings.transactional_id,
            transaction_timeout_ms=settings.timeout_ms,
            max_block_ms=SECONDS_MAX * 1000,
        )
        self._producer.init_transactions()
        self._consumer: Any = self._consuming(common) if settings.inputs else None

    def _consuming(self, common: Mapping[str, Any]) -> Any:
        settings = self._settings
        consumer = KafkaConsumer(
            **common,
            group_id=settings.group,
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            max_poll_records=settings.records_max,
            fetch_max_wait_ms=100,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=500,
        )
        if settings.is_member:
            consumer.subscribe(sorted({topic for topic, _ in settings.inputs}))
        else:
            consumer.assign([TopicPartition(*place) for place in settings.inputs])
        return consumer

    def poll(self) -> list[Input]:
        polled = self._consumer.poll(timeout_ms=200 if self._consumer.assignment() else JOIN_MS)
        return [
            Input((each.topic, each.partition), each.offset, each.key)
            for records in polled.values()
            for each in records
        ]

    def begin(self) -> None:
        self._sent = []
        self._producer.begin_transaction()

    def send(self, place: Place, key: bytes, value: bytes | None, record_id: bytes) -> None:
        topic, partition = place
        self._sent.append(
            self._producer.send(
                topic, value, key=key, partition=partition, headers=[("id", record_id)]
            )
        )

    def delivered(self) -> list[int]:
        self._producer.flush(SECONDS_MAX)
        return [future.get(SECONDS_MAX).offset for future in self._sent]

    def send_offsets(self, offsets: Mapping[Place, int]) -> None:
        named = {
            TopicPartition(*place): OffsetAndMetadata(offset, "", -1)
            for place, offset in offsets.items()
        }
        self._producer.send_offsets_to_transaction(named, self._consumer.group_metadata())

    def commit(self) -> None:
        self._producer.commit_transaction()

    def abort(self) -> None:
        self._producer.abort_transaction()

    def rewind(self) -> None:
        if self._consumer is not None:
            for part in self._consumer.assignment():
                self._consumer.seek(part, self._consumer.committed(part) or 0)

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
        self._producer.close()
