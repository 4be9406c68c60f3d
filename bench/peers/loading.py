"""Requests that clients repeat: wait until the first is served, then load a server with them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from bench.base.closed_loop import closed_loop
from bench.base.connection import connected
from bench.peers.comparison import Peer

WARM_REQUESTS_A_SECOND = 1_000
"""How many requests find out how fast a server is; they warm it up, too."""
READY_SECONDS_MAX = 60.0


def loaded_rate(peer: Peer, frames: Sequence[bytes], seconds: float) -> float:
    """Load a server for so many seconds, each frame on its connection. Returns requests/s."""
    with closed_loop(peer.port, frames, peer.tls) as answered:
        warm = answered(int(WARM_REQUESTS_A_SECOND * seconds))
        count = max(1, int(warm * seconds))
        with peer.costing(count):
            return answered(count)


def wait_until_served(
    peer: Peer, frames: Sequence[bytes], error_in: Callable[[memoryview], int]
) -> None:
    """Send each request until its answer has no error.

    Apache Kafka answers the creation of a topic before its partitions have a leader, and names a
    coordinator before that has loaded.
    """
    deadline = time.monotonic() + READY_SECONDS_MAX
    with connected(peer.port, peer.tls) as connection:
        for frame in frames:
            while error := error_in(connection.ask(frame)):
                if time.monotonic() > deadline:
                    raise RuntimeError(f"the broker refused a request: error {error}")
                time.sleep(0.01)
