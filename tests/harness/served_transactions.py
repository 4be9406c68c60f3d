"""A transactional producer for a served broker: it calls the coordinator directly, and sends batches by
Produce."""

from __future__ import annotations

import asyncio

from protocol.messages.produce import ProduceResponse
from protocol.wire.error_codes import ErrorCode
from server.coordination.producer import Producer
from server.coordination.transactions.metadata import TransactionPartition
from tests.harness.log_builder import KeyValue, batch_of
from tests.harness.served_broker import ServedBroker, only_produced, produce_request


class ServedTransactions:
    """One transactional id, whose transactions include one partition of a topic."""

    def __init__(self, served: ServedBroker, transactional_id: str, topic: str) -> None:
        self._served = served
        self._id = transactional_id
        self._topic = topic
        self._sequence = 0
        self.producer = Producer(-1, -1)

    async def begin(self) -> None:
        """Begin a transaction, once the previous one is complete."""
        transactions = self._served.broker.transactions
        if self.producer.id < 0:
            self.producer = (await transactions.init_producer_id(self._id, 60_000)).producer
        partitions = frozenset({TransactionPartition(self._topic, 0)})
        while True:
            added = await transactions.add_partitions(self._id, self.producer, partitions)
            if added.error_code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                assert added.error_code is ErrorCode.NONE
                return
            await asyncio.sleep(0.001)

    def batch(self, *pairs: KeyValue) -> bytearray:
        """Returns the next batch."""
        batch = batch_of(
            pairs,
            producer_id=self.producer.id,
            producer_epoch=self.producer.epoch,
            base_sequence=self._sequence,
            is_transactional=True,
        )
        self._sequence += len(pairs)
        return batch

    async def produce(self, batch: bytearray, transactional_id: str | None = "") -> ErrorCode:
        """Produce a batch, if given with another transactional id or none. Returns the error code."""
        named = self._id if transactional_id == "" else transactional_id
        request = produce_request(self._topic, batch, transactional_id=named)
        response = await self._served.call(request, 9, ProduceResponse)
        return ErrorCode(only_produced(response).error_code)

    async def send(self, *pairs: KeyValue) -> None:
        """Produce a batch, which must be accepted."""
        error = await self.produce(self.batch(*pairs))
        assert error is ErrorCode.NONE, error

    async def end(self, *, is_commit: bool) -> None:
        """End the transaction, and wait for its marker."""
        log = self._served.log(self._topic)
        transactions = self._served.broker.transactions
        before = log.log_end_offset
        ending = await transactions.end(
            self._id, self.producer, is_commit=is_commit, bumps_epoch=False
        )
        outcome = await ending
        assert outcome.error_code is ErrorCode.NONE
        while log.high_watermark == before:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
