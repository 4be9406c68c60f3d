"""Kompakt beside Apache Kafka: the same frames from the same client process, in turn.

    requests      one record each, one at a time on each connection
    batches       16 KiB and 64 KiB, spread over connections and partitions
    fetches       64 KiB and 1 MiB answers from the page cache

The peer's value takes the place of the machine's limit in each figure, so a ratio above 1 is ours.
The note has the CPU of both processes, which the ratio of rates hides once a core is idle. Apache Kafka
does not sync what it acknowledges; with acks=all we do, unless the figure says otherwise.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

from bench.base.apache_kafka import NAME as KAFKA
from bench.base.apache_kafka import kafka_command
from bench.base.batches import keyed_batch
from bench.base.closed_loop import answered_rate
from bench.base.connection import connected
from bench.base.figure import Figure, interleaved
from bench.base.processes import broker_command, cpu_seconds, free_port, running
from bench.base.raw_protocol import fetch_request, fetched_records, produce_errors, produce_request
from bench.clients.throughput import MEGABYTE, topic_on
from protocol.records.batch_header import read_header

ONE_RECORD = keyed_batch(records=1, value_bytes=84, keys=1, seed=4)
BATCH_16 = keyed_batch(records=150, value_bytes=85, keys=100_000, seed=6)
BATCH_64 = keyed_batch(records=600, value_bytes=85, keys=100_000, seed=1)
WARM_REQUESTS = 2_000
"""How many requests find out how fast a server is; they warm it up, too."""
SECONDS = 2.0
"""How long it is then loaded."""
FETCHED_BYTES = 64 << 20
FETCH_ROUNDS = 4
LEADER_SECONDS_MAX = 10.0
UNSYNCED = "flush.on.acks.all=false"


@dataclass(slots=True)
class Peer:
    """A server under measurement, and what its requests have cost."""

    port: int
    pid: int
    micros: list[float] = field(default_factory=list)

    @contextmanager
    def costing(self, requests: int) -> Iterator[None]:
        """Note the CPU of each of so many requests."""
        before = cpu_seconds(self.pid)
        yield
        self.micros.append((cpu_seconds(self.pid) - before) / requests * 1e6)


Peers = tuple[Peer, Peer]
"""Kompakt and Apache Kafka."""


def peer_figures(pairs: int) -> list[Figure]:
    """Measure every row, with Kompakt and Apache Kafka in turn.

    Raises:
        JarsUnavailable: Java or Maven is missing.
    """
    with both() as peers:
        figures = [
            produced_figure(peers, pairs, acks, connections=connections)
            for connections in (1, 16, 64)
            for acks in (1, -1)
        ]
        figures += [
            produced_figure(
                peers, pairs, acks, batch, connections=connections, partitions=partitions
            )
            for batch, connections, partitions in ((BATCH_16, 16, 16), (BATCH_64, 1, 1))
            for acks in (1, -1)
        ]
        figures += [fetched_figure(peers, pairs, size) for size in (64 << 10, 1 << 20)]
    with both(UNSYNCED) as peers:
        figures += [
            produced_figure(peers, pairs, -1, connections=connections, note=", ours not synced")
            for connections in (1, 16)
        ]
    return figures


@contextmanager
def both(*overrides: str) -> Iterator[Peers]:
    """Run both brokers."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        port, kafka_port = free_port(), free_port()
        ours = broker_command(port, Path(folder) / "data", "log.cleaner.enable=false", *overrides)
        theirs = kafka_command(kafka_port, Path(folder) / "kafka")
        pids = [
            stack.enter_context(running(command, at))
            for command, at in ((ours, port), (theirs, kafka_port))
        ]
        yield Peer(port, pids[0]), Peer(kafka_port, pids[1])


def produced_figure(
    peers: Peers,
    pairs: int,
    acks: int,
    batch: bytes = ONE_RECORD,
    *,
    connections: int,
    partitions: int = 1,
    note: str = "",
) -> Figure:
    """Measure produces of one batch, one at a time on each connection."""
    is_small = batch is ONE_RECORD
    label = "one record" if is_small else f"{len(batch) >> 10} KiB"
    spread = f" x {partitions} partitions" if partitions > 1 else ""
    ack = "acks=all" if acks < 0 else "acks=1"
    name = f"produce, {label}, {connections} connections{spread}, {ack}{note}"

    def rate(peer: Peer) -> float:
        with topic_on(peer.port, "delete", partitions) as topic:
            frames = [
                produce_request(topic, number % partitions, batch, acks=acks)
                for number in range(connections)
            ]
            wait_until_accepted(peer.port, frames)
            warm = answered_rate(peer.port, frames, WARM_REQUESTS)
            count = int(warm * SECONDS)
            with peer.costing(count):
                taken = answered_rate(peer.port, frames, count)
        return taken if is_small else taken * len(batch) / MEGABYTE

    unit = "requests/s" if is_small else "MB/s"
    return figure_of(name, unit, rate, peers, pairs)


def wait_until_accepted(port: int, frames: Sequence[bytes]) -> None:
    """Send each request until it is accepted: Apache Kafka answers the creation of a topic before its
    partitions have a leader."""
    deadline = time.monotonic() + LEADER_SECONDS_MAX
    with connected(port) as connection:
        for frame in frames:
            while errors := produce_errors(connection.ask(frame)):
                if time.monotonic() > deadline:
                    raise RuntimeError(f"the broker refused a batch: error {errors}")
                time.sleep(0.01)


def fetched_figure(peers: Peers, pairs: int, bytes_max: int) -> Figure:
    """Measure fetches of one partition from the page cache, one at a time."""
    with ExitStack() as stack:
        requests = {}
        for peer in peers:
            topic = stack.enter_context(topic_on(peer.port, "delete"))
            frame = produce_request(topic, 0, BATCH_64, acks=1)
            wait_until_accepted(peer.port, [frame])
            answered_rate(peer.port, [frame], FETCHED_BYTES // len(BATCH_64))
            requests[peer.port] = fetches(peer.port, topic, bytes_max)

        def rate(peer: Peer) -> float:
            frames = requests[peer.port]
            with connected(peer.port) as connection, peer.costing(FETCH_ROUNDS * len(frames)):
                started, received = time.perf_counter(), 0
                for frame in frames * FETCH_ROUNDS:
                    received += len(connection.ask(frame))
                return received / MEGABYTE / (time.perf_counter() - started)

        return figure_of(f"fetch, {bytes_max >> 10} KiB answers", "MB/s", rate, peers, pairs)


def fetches(port: int, topic: str, bytes_max: int) -> list[bytes]:
    """Returns the requests that read a topic of equal batches from start to end."""
    frames, offset = list[bytes](), 0
    records = read_header(BATCH_64).record_count
    with connected(port) as connection:
        while True:
            frame = fetch_request(topic, 0, offset, bytes_max=bytes_max)
            ((_, fetched),) = fetched_records(connection.ask(frame))
            if not len(fetched):
                return frames
            frames.append(frame)
            # Apache Kafka cuts the last batch of an answer off in its middle.
            offset += len(fetched) // len(BATCH_64) * records


def figure_of(
    name: str, unit: str, rate: Callable[[Peer], float], peers: Peers, pairs: int
) -> Figure:
    """Measure both in turn. The note has the CPU of a request."""
    for peer in peers:
        rate(peer)  # Apache Kafka's first minute is its compiler's.
        peer.micros.clear()
    ours, theirs = peers
    figure = interleaved(
        name, unit, lambda: rate(ours), lambda: rate(theirs), limit_is=KAFKA, pairs=pairs
    )
    mine, its = (median(peer.micros) for peer in peers)
    return replace(figure, note=f"{mine:.0f} µs of CPU a request (peer {its:.0f})")
