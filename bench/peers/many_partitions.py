"""Produce to very many partitions, one record to each of them in turn."""

from __future__ import annotations

import itertools
from contextlib import ExitStack

from bench.base.connection import connected
from bench.base.figure import Figure
from bench.base.raw_protocol import produce_request
from bench.clients.throughput import pump, topic_on
from bench.peers.comparison import Comparison, Peer
from bench.peers.loading import WARM_REQUESTS_A_SECOND
from bench.peers.produce import ONE_RECORD, wait_until_accepted


def produced_to_many_figure(servers: Comparison, *, partitions: int) -> Figure:
    """Measure produces of one record on one connection, several of them on their way."""
    with ExitStack() as stack:
        frames = {}
        for peer in servers.peers:
            topic = stack.enter_context(topic_on(peer.port, "delete", partitions, peer.tls))
            frames[peer.port] = [
                produce_request(topic, each, ONE_RECORD.batch, acks=1) for each in range(partitions)
            ]
            # The first write to a partition may make its files.
            wait_until_accepted(peer, frames[peer.port])

        def rate(peer: Peer) -> float:
            turns = list(itertools.islice(itertools.cycle(frames[peer.port]), partitions))
            with connected(peer.port, peer.tls) as connection:
                warm = int(WARM_REQUESTS_A_SECOND * servers.effort.seconds)
                count = int(warm / pump(connection, turns, warm) * servers.effort.seconds) + 1
                with peer.costing(count):
                    return count / pump(connection, turns, count)

        name = f"produce, one record to each of {partitions} partitions in turn, acks=1"
        return servers.figure(name, "requests/s", rate)
