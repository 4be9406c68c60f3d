"""acks=all over many partitions, compared with the sync ceiling of the same pattern.

Each request carries one 64 KiB batch for each of up to 16 partitions, which is the maximum of Kafka's
clients (max.request.size), and the requests take turns over all partitions. The ceiling is a null
broker that receives the same frames, checksums them, writes them to as many files and answers
when all files that it wrote to are synced, with the same number of sync threads as the broker.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from bench.base.batches import keyed_batch
from bench.base.connection import connected
from bench.base.figure import Figure, interleaved
from bench.base.null_broker import TOPIC as NULL_TOPIC
from bench.base.processes import broker_command, free_port, null_broker_command, running
from bench.base.raw_protocol import produce_to_many_request
from bench.clients.throughput import MEGABYTE, PRODUCED_BYTES, CpuMeter, pump, topic_on

PARTITIONS = (1, 8, 64)
BATCHES_A_REQUEST = 16


def group_commit_figures(pairs: int) -> list[Figure]:
    """Measure acks=all with 64 KiB batches over few and many partitions."""
    batch = keyed_batch(records=600, value_bytes=85, keys=100_000, seed=5)
    return [group_commit_figure(batch, partitions, pairs) for partitions in PARTITIONS]


def group_commit_figure(batch: bytes, partitions: int, pairs: int) -> Figure:
    each = min(partitions, BATCHES_A_REQUEST)
    count = PRODUCED_BYTES // (each * len(batch))
    size = count * each * len(batch)
    with tempfile.TemporaryDirectory() as folder:
        port, null_port = free_port(), free_port()
        broker = broker_command(port, Path(folder) / "data", "log.cleaner.enable=false")
        null = null_broker_command("synced", null_port, Path(folder) / "null", partitions, each)
        with running(broker, port) as pid, running(null, null_port) as null_pid:
            cpu, null_cpu = CpuMeter(pid), CpuMeter(null_pid)

            def measure() -> float:
                with topic_on(port, "delete", partitions) as topic, cpu.over(size):
                    return spread_rate(port, topic, batch, partitions, count)

            def probe() -> float:
                with null_cpu.over(size):
                    return spread_rate(null_port, NULL_TOPIC, batch, partitions, count)

            figure = interleaved(
                f"produce, acks=all, 64 KiB batches, {partitions} partitions",
                "MB/s",
                measure,
                probe,
                limit_is="null broker: recv, CRC-32C, write, group fdatasync",
                pairs=pairs,
            )
    return replace(figure, note=f"{cpu.note} (limit {null_cpu.note})")


def spread_rate(port: int, topic: str, batch: bytes, partitions: int, count: int) -> float:
    """Returns MB/s of `count` requests, each with a batch for every partition whose turn it is."""
    each = min(partitions, BATCHES_A_REQUEST)
    frames = [
        produce_to_many_request(topic, range(first, first + each), batch, acks=-1)
        for first in range(0, partitions, each)
    ]
    with connected(port) as connection:
        return count * each * len(batch) / MEGABYTE / pump(connection, frames, count)
