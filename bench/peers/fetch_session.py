"""A consumer of many partitions, few of which get records: it waits in a fetch session (KIP-227).

One record is produced to one partition after the other, by another connection. The consumer's fetch has
waited for it, and the next fetch names just that partition.
"""

from __future__ import annotations

import time

from bench.base.connection import Connection, connected
from bench.base.figure import Figure
from bench.base.messages import answer_in, frame_of
from bench.base.raw_protocol import fetch_head, fetch_request, produce_request
from bench.clients.throughput import topic_on
from bench.peers.comparison import Comparison, Peer
from bench.peers.loading import wait_until_served
from bench.peers.produce import ONE_RECORD
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from protocol.wire.error_codes import ErrorCode

VERSION = 11
WAIT_MS = 60_000
FETCH_BYTES_MAX = 1 << 20
WARM_ROUNDS = 200
"""How many records find out how fast a server is. Each partition has got one before, which may have made
its files."""


def fetched_in_session_figure(servers: Comparison, *, partitions: int) -> Figure:
    """Measure the way of a record to a consumer of so many partitions."""

    def rate(peer: Peer) -> float:
        with (
            topic_on(peer.port, "delete", partitions, peer.tls) as topic,
            connected(peer.port, peer.tls) as producer,
            connected(peer.port, peer.tls) as connection,
        ):
            reads = [fetch_request(topic, each, 0, bytes_max=1) for each in range(partitions)]
            wait_until_served(peer, reads, lambda answer: fetch_head(answer)[0])
            loop = _Loop(producer, _Consumer(connection, topic, partitions), topic, partitions)
            loop.rate(partitions)
            count = int(loop.rate(WARM_ROUNDS) * servers.effort.seconds) + 1
            with peer.costing(count):
                return loop.rate(count)

    name = f"one record to a consumer of {partitions} partitions"
    return servers.figure(name, "records/s", rate)


class _Consumer:
    """A consumer in a session."""

    def __init__(self, connection: Connection, topic: str, partitions: int) -> None:
        self._connection = connection
        self._topic = topic
        self._session = self._epoch = 0
        self._send(dict.fromkeys(range(partitions), 0), wait_ms=0)
        assert not self._receive()
        assert self._session, "the broker gives no session"

    def wait_for(self, changed: dict[int, int]) -> None:
        """Send the next request, which names the partitions that are to be read from new offsets."""
        self._send(changed, wait_ms=WAIT_MS)

    def received(self) -> dict[int, int]:
        """Wait for the answer. Returns the partitions with records, and their high watermarks."""
        return self._receive()

    def _send(self, offsets: dict[int, int], *, wait_ms: int) -> None:
        partitions = tuple(
            FetchPartition(partition=each, fetch_offset=at, partition_max_bytes=FETCH_BYTES_MAX)
            for each, at in offsets.items()
        )
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=FETCH_BYTES_MAX,
            session_id=self._session,
            session_epoch=self._epoch,
            topics=(FetchTopic(topic=self._topic, partitions=partitions),) if offsets else (),
        )
        self._connection.send(frame_of(request, VERSION))

    def _receive(self) -> dict[int, int]:
        answer = answer_in(self._connection.receive(), FetchResponse, VERSION)
        if answer.error_code != ErrorCode.NONE:
            raise RuntimeError(f"the broker ended a fetch session: error {answer.error_code}")
        self._session, self._epoch = answer.session_id, self._epoch + 1
        return {
            data.partition_index: data.high_watermark
            for topic in answer.responses
            for data in topic.partitions
            if data.records is not None and len(data.records)
        }


class _Loop:
    """Produces records, one after the other, and lets the consumer get each."""

    def __init__(
        self, producer: Connection, consumer: _Consumer, topic: str, partitions: int
    ) -> None:
        self._producer = producer
        self._consumer = consumer
        self._produces = [
            produce_request(topic, each, ONE_RECORD.batch, acks=1) for each in range(partitions)
        ]
        # State
        self._rounds = 0
        self._changed: dict[int, int] = {}

    def rate(self, count: int) -> float:
        """Let so many records arrive. Returns how many arrive in a second."""
        began = time.perf_counter()
        for _ in range(count):
            partition = self._rounds % len(self._produces)
            self._consumer.wait_for(self._changed)
            self._producer.ask(self._produces[partition])
            while partition not in (changed := self._consumer.received()):
                # Apache Kafka now and then answers before the records can be read.
                self._consumer.wait_for(changed)
            self._changed = changed
            self._rounds += 1
        return count / (time.perf_counter() - began)
