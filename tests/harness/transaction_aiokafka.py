"""aiokafka as a client for `transaction_program.py`, one call at a time.

It assigns partitions itself instead of joining the group: it fetches offsets in a version that does not
wait for the transactions of other producers (KIP-447).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from tests.harness.transaction_history import Place
from tests.harness.transaction_program import Input, Settings

SECONDS_MAX = 20.0
Result = TypeVar("Result")


class AiokafkaProgram:
    """A producer and, with inputs, a consumer, on their own loop."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._loop = asyncio.new_event_loop()
        self._sent: list[Any] = []
        self._run(self._start())

    async def _start(self) -> None:
        settings = self._settings
        self._producer = AIOKafkaProducer(
            bootstrap_servers=settings.bootstrap,
            transactional_id=settings.transactional_id,
            transaction_timeout_ms=settings.timeout_ms,
            retry_backoff_ms=20,
            request_timeout_ms=5_000,
        )
        await self._producer.start()
        if not settings.inputs:
            return
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=settings.bootstrap,
            group_id=settings.group,
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            retry_backoff_ms=20,
            fetch_max_wait_ms=100,
        )
        self._consumer.assign([TopicPartition(*place) for place in settings.inputs])
        await self._consumer.start()

    def _run(self, call: Coroutine[Any, Any, Result]) -> Result:
        return self._loop.run_until_complete(asyncio.wait_for(call, SECONDS_MAX))

    def poll(self) -> list[Input]:
        count = self._settings.records_max
        polled = self._run(self._consumer.getmany(timeout_ms=200, max_records=count))
        return [
            Input((each.topic, each.partition), each.offset, each.key)
            for records in polled.values()
            for each in records
        ]

    def begin(self) -> None:
        self._sent = []
        self._run(self._producer.begin_transaction())

    def send(self, place: Place, key: bytes, value: bytes | None, record_id: bytes) -> None:
        topic, partition = place
        sending = self._producer.send(
            topic, value, key, partition=partition, headers=[("id", record_id)]
        )
        self._sent.append(self._run(sending))

    def delivered(self) -> list[int]:
        return self._run(self._all_delivered())

    async def _all_delivered(self) -> list[int]:
        return [(await future).offset for future in self._sent]

    def send_offsets(self, offsets: Mapping[Place, int]) -> None:
        named = {TopicPartition(*place): offset for place, offset in offsets.items()}
        self._run(self._producer.send_offsets_to_transaction(named, self._settings.group))

    def commit(self) -> None:
        self._run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._run(self._producer.abort_transaction())

    def rewind(self) -> None:
        if self._settings.inputs:
            self._run(self._rewound())

    async def _rewound(self) -> None:
        for part in self._consumer.assignment():
            self._consumer.seek(part, await self._consumer.committed(part) or 0)

    def close(self) -> None:
        if self._settings.inputs:
            self._run(self._consumer.stop())
        self._run(self._producer.stop())
