"""Transactions: producers that add a partition to each and commit it, one after the other.

Kompakt syncs the coordinator's records; Apache Kafka does not.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from bench.base.connection import Connection, connected
from bench.base.figure import Figure
from bench.base.messages import answer_in, frame_of
from bench.clients.throughput import topic_on
from bench.peers.comparison import Comparison, Peer
from bench.peers.loading import READY_SECONDS_MAX
from protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.wire.error_codes import ErrorCode

VERSION = 3
"""Of AddPartitionsToTxn and EndTxn: the epoch stays the same."""
INIT_VERSION = FIND_VERSION = 4
TRANSACTION = 1
TIMEOUT_MS = 60_000
WARM_TRANSACTIONS = 200
RETRY_SECONDS = 0.001
NOT_YET = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
"""The answers after which a client tries again: the coordinator loads, or still writes the markers."""


def transactions_figure(servers: Comparison) -> Figure:
    """Measure the transactions of one producer, each with one partition."""

    def rate(peer: Peer) -> float:
        with (
            topic_on(peer.port, "delete", tls=peer.tls) as topic,
            connected(peer.port, peer.tls) as connection,
        ):
            producer, seconds = _Producer(connection, topic), servers.effort.seconds
            # The first ones find out how fast the server is, and warm it up.
            count = int(producer.rate(WARM_TRANSACTIONS) * seconds) + 1
            with peer.costing(count):
                return producer.rate(count)

    return servers.figure("transactions, one producer, one partition", "transactions/s", rate)


class _Producer:
    """A transactional producer with its own id."""

    def __init__(self, connection: Connection, topic: str) -> None:
        self._connection = connection
        # Apache Kafka creates the topic of transactions for the first such request.
        find = FindCoordinatorRequest(coordinator_keys=(topic,), key_type=TRANSACTION)
        connection.ask(frame_of(find, FIND_VERSION))
        init = InitProducerIdRequest(transactional_id=topic, transaction_timeout_ms=TIMEOUT_MS)
        frame = frame_of(init, INIT_VERSION)
        answer = _answer_of_init(self._ask(frame, lambda each: _answer_of_init(each).error_code))
        self._add = frame_of(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=topic,
                v3_and_below_producer_id=answer.producer_id,
                v3_and_below_producer_epoch=answer.producer_epoch,
                v3_and_below_topics=(AddPartitionsToTxnTopic(name=topic, partitions=(0,)),),
            ),
            VERSION,
        )
        self._end = frame_of(
            EndTxnRequest(
                transactional_id=topic,
                producer_id=answer.producer_id,
                producer_epoch=answer.producer_epoch,
                committed=True,
            ),
            VERSION,
        )

    def rate(self, count: int) -> float:
        """Commit so many transactions. Returns how many it is in a second."""
        began = time.perf_counter()
        for _ in range(count):
            self._ask(self._add, _error_of_add)
            self._ask(self._end, _error_of_end)
        return count / (time.perf_counter() - began)

    def _ask(self, frame: bytes, error_in: Callable[[memoryview], int]) -> memoryview:
        """Send a request until it is carried out. Returns the answer."""
        deadline = time.monotonic() + READY_SECONDS_MAX
        while error := error_in(answer := self._connection.ask(frame)):
            if error not in NOT_YET or time.monotonic() > deadline:
                raise RuntimeError(f"the broker refused a transaction: error {error}")
            time.sleep(RETRY_SECONDS)
        return answer


def _answer_of_init(answer: memoryview) -> InitProducerIdResponse:
    return answer_in(answer, InitProducerIdResponse, INIT_VERSION)


def _error_of_add(answer: memoryview) -> int:
    (topic,) = answer_in(answer, AddPartitionsToTxnResponse, VERSION).results_by_topic_v3_and_below
    return topic.results_by_partition[0].partition_error_code


def _error_of_end(answer: memoryview) -> int:
    return answer_in(answer, EndTxnResponse, VERSION).error_code
