"""Produce: one request at a time on each connection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.base.batches import keyed_batch, tombstone_batch
from bench.base.figure import Figure
from bench.base.raw_protocol import produce_errors, produce_request
from bench.base.warm_pages import warm_pages
from bench.clients.throughput import MEGABYTE, topic_on
from bench.peers.comparison import Comparison, Peer
from bench.peers.loading import loaded_rate, wait_until_served
from protocol.records.record_batch import Codec

REQUESTS_A_SECOND_MAX = 60_000
BYTES_A_SECOND_MAX = 700 << 20


@dataclass(frozen=True, slots=True)
class Load:
    """A batch to send, and how the rate of its requests is counted."""

    label: str
    batch: bytes
    unit: str = "requests/s"
    each: float = 1.0
    """What one request adds to the rate."""

    @property
    def bytes_a_second_max(self) -> int:
        """About as much as any broker takes, so that none pays for new pages."""
        return min(len(self.batch) * REQUESTS_A_SECOND_MAX, BYTES_A_SECOND_MAX)


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
    return Load(label, batch, "MB/s", len(plain) / MEGABYTE)


ONE_RECORD = Load("one record", keyed_batch(records=1, value_bytes=84, keys=1, seed=4))
KILOBYTE, TEN_KILOBYTES = (
    Load(
        f"one record of {size} KB", keyed_batch(records=1, value_bytes=1000 * size, keys=1, seed=7)
    )
    for size in (1, 10)
)
BATCH_16 = load_in_bytes(keyed_batch(records=150, value_bytes=85, keys=100_000, seed=6))
BATCH_64 = load_in_bytes(keyed_batch(records=600, value_bytes=85, keys=100_000, seed=1))


def produced_figure(
    servers: Comparison,
    load: Load,
    acks: int,
    *,
    connections: int,
    partitions: int = 1,
    beside: str = "",
) -> Figure:
    """Measure produces of one batch, spread over connections and partitions.

    `beside` is the end of the figure's name: what the servers do at the same time.
    """
    spread = f" x {partitions} partitions" if partitions > 1 else ""
    ack = "acks=all" if acks < 0 else "acks=1"

    def rate(peer: Peer) -> float:
        with topic_on(peer.port, "delete", partitions, peer.tls) as topic:
            frames = [
                produce_request(topic, number % partitions, load.batch, acks=acks)
                for number in range(connections)
            ]
            wait_until_accepted(peer, frames[:partitions])
            warm_pages(int(load.bytes_a_second_max * servers.effort.seconds))
            return load.each * loaded_rate(peer, frames, servers.effort.seconds)

    name = f"produce, {load.label}, {connections} connections{spread}, {ack}{beside}"
    return servers.figure(name, load.unit, rate)


def wait_until_accepted(peer: Peer, frames: Sequence[bytes]) -> None:
    """Send each produce until it is accepted."""
    wait_until_served(peer, frames, lambda answer: max(produce_errors(answer), default=0))
