"""The way of a record to a waiting consumer, at a rate that does not depend on the answers.

A producer sends so many records a second, with acks=1, by the clock: if the broker is late, the records
that wait count too (no coordinated omission). A consumer in a process of its own notes when each
arrives. Kompakt shows records to consumers once they are synced, Apache Kafka at once. Times: less is
better.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import quantiles

from bench.base.connection import Connection, connected
from bench.base.figure import Figure
from bench.base.raw_protocol import produce_request
from bench.clients.arrivals import consuming
from bench.clients.throughput import topic_on
from bench.peers.comparison import Comparison, Peer
from bench.peers.produce import ONE_RECORD, wait_until_accepted


def delivery_figure(servers: Comparison, *, records_a_second: int, percentile: int) -> Figure:
    """Measure a percentile of the time from a record's moment until the consumer has it."""

    def milliseconds(peer: Peer) -> float:
        count = int(records_a_second * servers.effort.seconds)
        with (
            topic_on(peer.port, "delete", tls=peer.tls) as topic,
            connected(peer.port, peer.tls) as connection,
            tempfile.TemporaryDirectory() as folder,
        ):
            frame = produce_request(topic, 0, ONE_RECORD.batch, acks=1)
            wait_until_accepted(peer, [frame])
            with consuming(peer.port, topic, [1], Path(folder), copies=False) as consumer:
                with peer.costing(count):
                    sent_ns = _sent(connection, frame, count, records_a_second)
                arrived = consumer.read_up_to([1 + count])
        times = [arrived[0, 1 + number] - at for number, at in enumerate(sent_ns)]
        return quantiles(times, n=100)[percentile - 1] / 1e6

    name = f"delivery p{percentile} at {records_a_second} records/s"
    return servers.figure(name, "ms", milliseconds, is_time=True)


def _sent(connection: Connection, frame: bytes, count: int, rate: int) -> list[int]:
    """Send the frame at its moments. Returns these, in nanoseconds."""
    started, answers = time.monotonic_ns(), 0
    moments = [started + int(number * 1e9 / rate) for number in range(count)]
    for moment in moments:
        while (wait_ns := moment - time.monotonic_ns()) > 0:
            if connection.has_answer_within(wait_ns / 1e9):
                connection.receive()
                answers += 1
        connection.send(frame)
    while answers < count:
        connection.receive()
        answers += 1
    return moments
