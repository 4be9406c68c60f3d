"""The latency of acks=all beside the machine's own limit, because Apache Kafka does not sync.

The limit is a server that receives the same frame, writes it, syncs the file and answers, one at a time.
These figures are times: the lower the better, and 1 is the best possible ratio.
"""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median, quantiles

from bench.base.connection import connected
from bench.base.figure import Figure, interleaved
from bench.base.processes import free_port, null_broker_command, running
from bench.base.raw_protocol import produce_request
from bench.clients.throughput import topic_on
from bench.peers.comparison import Comparison, Peer
from bench.peers.produce import ONE_RECORD, wait_until_accepted

REQUESTS_A_SECOND = 1_000
"""How many requests a second of load stands for: a percentile needs a number of them, not a time."""


def commit_latency_figure(servers: Comparison, *, percentile: int) -> Figure:
    """Measure produces of one record, one at a time, in turn with the limit."""
    port, count = free_port(), int(REQUESTS_A_SECOND * servers.effort.seconds)
    with tempfile.TemporaryDirectory() as folder:
        null = null_broker_command("ping_synced", port, Path(folder) / "null")
        with running(null, port) as pid, topic_on(servers.ours.port, "delete") as topic:
            ours, limit = servers.ours, Peer(port, pid)
            frame = produce_request(topic, 0, ONE_RECORD.batch, acks=-1)
            wait_until_accepted(ours, [frame])
            for each in (ours, limit):
                latency_ms(each, frame, count, percentile)
                each.micros.clear()
            figure = interleaved(
                f"produce latency p{percentile}, one record, 1 connections, acks=all{servers.label}",
                "ms",
                lambda: latency_ms(ours, frame, count, percentile),
                lambda: latency_ms(limit, frame, count, percentile),
                limit_is="ping-pong + fdatasync (less is better)",
                pairs=servers.effort.pairs,
            )
    mine, its = (median(each.micros) for each in (ours, limit))
    return replace(figure, note=f"{mine:.0f} µs of CPU a request (limit {its:.0f})")


def produce_latency_figure(servers: Comparison, *, percentile: int) -> Figure:
    """Measure the same produces in turn with the peer, for one that syncs as well."""
    count = int(REQUESTS_A_SECOND * servers.effort.seconds)
    with ExitStack() as stack:
        frames = {}
        for peer in servers.peers:
            topic = stack.enter_context(topic_on(peer.port, "delete", tls=peer.tls))
            frames[peer.port] = produce_request(topic, 0, ONE_RECORD.batch, acks=-1)
            wait_until_accepted(peer, [frames[peer.port]])

        def milliseconds(peer: Peer) -> float:
            return latency_ms(peer, frames[peer.port], count, percentile)

        name = f"produce latency p{percentile}, one record, 1 connections, acks=all"
        return servers.figure(name, "ms", milliseconds, is_time=True)


def latency_ms(peer: Peer, frame: bytes, count: int, percentile: int) -> float:
    """Returns a percentile of the time that an answer takes."""
    seconds = []
    with connected(peer.port) as connection, peer.costing(count):
        for _ in range(count):
            started = time.perf_counter()
            connection.ask(frame)
            seconds.append(time.perf_counter() - started)
    return 1e3 * quantiles(seconds, n=100)[percentile - 1]
