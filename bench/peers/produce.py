"""Produce: one request at a time on each connection."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from bench.base.batches import keyed_batch, tombstone_batch
from bench.base.closed_loop import closed_loop
from bench.base.connection import connected
from bench.base.figure import Figure
from bench.base.raw_protocol import produce_errors, produce_request
from bench.clients.throughput import MEGABYTE, topic_on
from bench.peers.comparison import Comparison, Peer
from protocol.records.record_batch import Codec

WARM_REQUESTS_A_SECOND = 1_000
"""How many requests find out how fast a server is; they warm it up, too."""
LEADER_SECONDS_MAX = 10.0


@dataclass(frozen=True, slots=True)
class Load:
    """A batch to send, and how the rate of its requests is counted."""

    label: str
    batch: bytes
    unit: str = "requests/s"
    each: float = 1.0
    """What one request adds to the rate."""


def load_in_bytes(batch: bytes) -> Load:
    """Returns a load whose rate is in MB/s."""
    return Load(f"{len(batch) >> 10} KiB", batch, "MB/s", len(batch) / MEGABYTE)


def compressed_load(codec: Codec) -> Load:
    """Returns a load of about 64 KiB before compression, which is what its rate counts."""
    plain, batch = (
        tombstone_batch(records=600, value_bytes=95, keys=100_000, seed=1, codec=each)
        for each in (Codec.NONE, codec)
    )
    label = f"{len(plain) >> 10} KiB {codec.name.lower()}"
    return Load(label, batch, "MB/s before compression", len(plain) / MEGABYTE)


ONE_RECORD = Load("one record", keyed_batch(records=1, value_bytes=84, keys=1, seed=4))
KILOBYTE, TEN_KILOBYTES = (
    Load(
        f"one record of {size} KB", keyed_batch(records=1, value_bytes=1000 * size, keys=1, seed=7)
    )
    for size in (1, 10)
)
BATCH_16 = load_in_bytes(keyed_batch(records=150, value_bytes=85, keys=100_000, seed=6))
BATCH_64 = load_in_bytes(keyed_batch(records=600, value_bytes=85, keys=100_000, seed=1))
COMPRESSED = tuple(map(compressed_load, Codec))


def produced_figure(
    servers: Comparison, load: Load, acks: int, *, connections: int, partitions: int = 1
) -> Figure:
    """Measure produces of one batch, spread over connections and partitions."""
    spread = f" x {partitions} partitions" if partitions > 1 else ""
    ack = "acks=all" if acks < 0 else "acks=1"

    def rate(peer: Peer) -> float:
        with topic_on(peer.port, "delete", partitions, peer.tls) as topic:
            frames = [
                produce_request(topic, number % partitions, load.batch, acks=acks)
                for number in range(connections)
            ]
            wait_until_accepted(peer, frames[:partitions])
            return load.each * loaded_rate(peer, frames, servers.effort.seconds)

    name = f"produce, {load.label}, {connections} connections{spread}, {ack}"
    return servers.figure(name, load.unit, rate)


def loaded_rate(peer: Peer, frames: Sequence[bytes], seconds: float) -> float:
    """Load a server for so many seconds, after a short load that warms it up. Returns requests/s."""
    with closed_loop(peer.port, frames, peer.tls) as answered:
        warm = answered(int(WARM_REQUESTS_A_SECOND * seconds))
        count = max(1, int(warm * seconds))
        with peer.costing(count):
            return answered(count)


def wait_until_accepted(peer: Peer, frames: Sequence[bytes]) -> None:
    """Send each request until it is accepted: Apache Kafka answers the creation of a topic before its
    partitions have a leader."""
    deadline = time.monotonic() + LEADER_SECONDS_MAX
    with connected(peer.port, peer.tls) as connection:
        for frame in frames:
            while errors := produce_errors(connection.ask(frame)):
                if time.monotonic() > deadline:
                    raise RuntimeError(f"the broker refused a batch: error {errors}")
                time.sleep(0.01)
