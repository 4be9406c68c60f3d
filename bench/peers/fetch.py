"""Fetch from the page cache: one request at a time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack

from bench.base.closed_loop import answered_rate
from bench.base.connection import connected
from bench.base.figure import Figure
from bench.base.raw_protocol import fetch_request, fetched_records, produce_request
from bench.clients.throughput import MEGABYTE, topic_on
from bench.peers.comparison import Comparison, Peer
from bench.peers.produce import BATCH_64, wait_until_accepted
from protocol.records.batch_header import read_header

BATCH = BATCH_64.batch
FETCHED_BYTES = 64 << 20
FETCH_ROUNDS = 4


def fetched_figure(servers: Comparison, bytes_max: int) -> Figure:
    """Measure fetches of one partition from its start to its end."""
    with ExitStack() as stack:
        requests = {}
        for peer in servers.peers:
            topic = stack.enter_context(topic_on(peer.port, "delete", tls=peer.tls))
            fill(peer, topic)
            requests[peer.port] = fetches(peer, topic, bytes_max) * FETCH_ROUNDS
        name = f"fetch, {bytes_max >> 10} KiB answers"
        return servers.figure(name, "MB/s", lambda peer: fetched_rate(peer, requests[peer.port]))


def fill(peer: Peer, topic: str) -> None:
    """Produce equal batches to a topic."""
    frame = produce_request(topic, 0, BATCH, acks=1)
    wait_until_accepted(peer, [frame])
    answered_rate(peer.port, [frame], FETCHED_BYTES // len(BATCH), peer.tls)


def fetches(peer: Peer, topic: str, bytes_max: int) -> list[bytes]:
    """Returns the requests that read a topic of equal batches from start to end."""
    frames, offset = list[bytes](), 0
    records = read_header(BATCH).record_count
    with connected(peer.port, peer.tls) as connection:
        while True:
            frame = fetch_request(topic, 0, offset, bytes_max=bytes_max)
            ((_, fetched),) = fetched_records(connection.ask(frame))
            if not len(fetched):
                return frames
            frames.append(frame)
            # Apache Kafka cuts the last batch of an answer off in its middle.
            offset += len(fetched) // len(BATCH) * records


def fetched_rate(peer: Peer, frames: Sequence[bytes]) -> float:
    """Returns MB/s of the answers to these requests."""
    with connected(peer.port, peer.tls) as connection, peer.costing(len(frames)):
        started, received = time.perf_counter(), 0
        for frame in frames:
            received += len(connection.ask(frame))
        return received / MEGABYTE / (time.perf_counter() - started)
