"""Produce beside long polls: many consumers wait for records of other partitions, as most do."""

from __future__ import annotations

import select
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

from bench.base.connection import answer_to, socket_to
from bench.base.figure import Figure
from bench.base.raw_protocol import (
    api_versions_request,
    fetch_from_many_request,
    fetch_head,
    fetch_request,
)
from bench.clients.throughput import topic_on
from bench.peers.comparison import Comparison, Peer
from bench.peers.loading import wait_until_served
from bench.peers.produce import ONE_RECORD, produced_figure

IDLE_PARTITIONS = 100
WAIT_MS = 600_000
"""Longer than a figure takes, so that all of them wait all the time."""
FETCH_BYTES_MAX = 1 << 20


def produced_beside_long_polls_figure(servers: Comparison, *, long_polls: int) -> Figure:
    """Measure produces of one record on one connection while so many fetches of idle partitions wait."""
    with ExitStack() as stack:
        for peer in servers.peers:
            stack.enter_context(waiting_fetches(peer, long_polls))
        beside = f", beside {long_polls} long polls"
        return produced_figure(servers, ONE_RECORD, 1, connections=1, beside=beside)


@contextmanager
def waiting_fetches(peer: Peer, count: int) -> Iterator[None]:
    """Keep so many fetches waiting, each on its connection.

    Raises:
        RuntimeError: one of them was answered.
    """
    with topic_on(peer.port, "delete", IDLE_PARTITIONS, peer.tls) as topic, ExitStack() as stack:
        reads = [fetch_request(topic, each, 0, bytes_max=1) for each in range(IDLE_PARTITIONS)]
        wait_until_served(peer, reads, lambda answer: fetch_head(answer)[0])
        poll = select.poll()
        for number in range(count):
            connection = stack.enter_context(closing(socket_to(peer.port, peer.tls)))
            # Answered before the next one connects: the queue of a listener is short.
            answer_to(connection, api_versions_request())
            connection.sendall(waiting_fetch(topic, number % IDLE_PARTITIONS))
            poll.register(connection, select.POLLIN)
        yield
        if answered := poll.poll(0):
            raise RuntimeError(f"{len(answered)} of {count} long polls were answered")


def waiting_fetch(topic: str, partition: int) -> bytes:
    """Returns a fetch of an empty partition, which a broker answers only when its time is over."""
    return fetch_from_many_request(
        topic, {partition: 0}, bytes_max=FETCH_BYTES_MAX, wait_ms=WAIT_MS
    )
