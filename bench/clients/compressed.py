"""Produce of compressed batches, compared with Apache Kafka: both inflate each batch to check it.

One producer keeps several requests in flight, acks=1. The batches hold 64 KiB before compression; half
of each value is noise.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import median

from bench.base.apache_kafka import NAME, kafka_command
from bench.base.batches import tombstone_batch
from bench.base.figure import Figure, of_pairs
from bench.base.processes import broker_command, cpu_seconds, free_port, running
from bench.clients.throughput import POLICIES, produced_rate, topic_on
from protocol.records.record_batch import Codec

CODECS = (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)
BATCHES = 4000
WARM_UP_ROUNDS = 3
"""Rounds that are not counted: Java compiles what it runs often."""
ACKS = 1
LEADER_SECONDS_MAX = 30.0


def compressed_figures(pairs: int) -> list[Figure]:
    """Measure both brokers in turn, codec by codec."""
    with tempfile.TemporaryDirectory() as folder:
        port, peer_port = free_port(), free_port()
        settings = ("log.cleaner.enable=false", "flush.on.acks.all=false")
        ours = running(broker_command(port, Path(folder) / "ours", *settings), port)
        peer = running(kafka_command(peer_port, Path(folder) / "kafka"), peer_port)
        with ours as pid, peer as peer_pid:
            return [_figure((port, pid), (peer_port, peer_pid), codec, pairs) for codec in CODECS]


def _figure(ours: tuple[int, int], peer: tuple[int, int], codec: Codec, pairs: int) -> Figure:
    batch = tombstone_batch(records=600, value_bytes=85, keys=100_000, seed=1, codec=codec)
    rounds = [
        (_produce(*ours, batch), _produce(*peer, batch)) for _ in range(WARM_UP_ROUNDS + pairs)
    ][WARM_UP_ROUNDS:]
    name = f"produce of {codec.name.lower()} batches, {len(batch) >> 10} KiB compressed"
    cpu = median(our_cpu for (_, our_cpu), _ in rounds)
    peer_cpu = median(peer_cpu for _, (_, peer_cpu) in rounds)
    taken = [(our_rate, peer_rate) for (our_rate, _), (peer_rate, _) in rounds]
    note = f"{cpu:.0f} CPU-us a request (limit {peer_cpu:.0f})"
    return of_pairs(name, "MB/s", taken, limit_is=NAME, note=note)


def _produce(port: int, pid: int, batch: bytes) -> tuple[float, float]:
    """Returns MB/s, and the microseconds of the broker's CPU time for each request."""
    with topic_on(port, POLICIES["plain"]) as topic:
        _wait_for_leader(port, topic, batch)
        began = cpu_seconds(pid)
        rate = produced_rate(port, topic, batch, BATCHES, ACKS)
        return rate, (cpu_seconds(pid) - began) / BATCHES * 1e6


def _wait_for_leader(port: int, topic: str, batch: bytes) -> None:
    """Return when the broker takes a batch: Kafka has no leader for a moment after CreateTopics."""
    deadline = time.monotonic() + LEADER_SECONDS_MAX
    while True:
        try:
            produced_rate(port, topic, batch, 1, ACKS)
        except RuntimeError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return
