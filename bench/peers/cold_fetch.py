"""Fetch of records that are not in the page cache, as a consumer reads that has fallen behind."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from bench.base.disk import drop_from_cache
from bench.base.figure import Figure
from bench.clients.throughput import topic_on
from bench.peers.comparison import Comparison, Peer
from bench.peers.fetch import fetched_rate, fetches, fill


def cold_fetched_figure(servers: Comparison, *, bytes_max: int) -> Figure:
    """Measure fetches of one partition from its start to its end, each from the disk."""
    with ExitStack() as stack:
        requests, topics = {}, {}
        for peer in servers.peers:
            topic = stack.enter_context(topic_on(peer.port, "delete", tls=peer.tls))
            fill(peer, topic)
            topics[peer.port], requests[peer.port] = topic, fetches(peer, topic, bytes_max)

        def rate(peer: Peer) -> float:
            leave_page_cache(peer.data, topics[peer.port])
            return fetched_rate(peer, requests[peer.port])

        name = f"fetch from the disk, {bytes_max >> 10} KiB answers"
        return servers.figure(name, "MB/s", rate)


def leave_page_cache(data: Path, topic: str) -> None:
    """Write the logs of a topic to the disk, and drop them from the page cache."""
    logs = {path.parent for path in data.rglob("*.log") if topic in str(path)}
    assert logs, f"{data} has no log of {topic}"
    for log in logs:
        drop_from_cache(log)
