"""Produce and fetch over TLS, compared with a bare server that uses Python's ssl for the same bytes."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from bench.base.batches import keyed_batch
from bench.base.figure import Figure, interleaved
from bench.base.null_broker import TOPIC as NULL_TOPIC
from bench.base.processes import broker_command, free_port, null_broker_command, running
from bench.base.tls import Tls
from bench.clients.throughput import (
    PRODUCED_BYTES,
    CpuMeter,
    fetched_rate,
    produced_rate,
    topic_on,
    write_batches,
)

Measure = Callable[[int, str], float]
"""Returns MB/s of a topic on a port."""


def tls_throughput_figures(pairs: int) -> list[Figure]:
    """Measure both in turn; clients and servers agree on the same version and cipher suite."""
    batch = keyed_batch(records=600, value_bytes=85, keys=100_000, seed=3)
    count = PRODUCED_BYTES // len(batch)
    size = count * len(batch)
    with tempfile.TemporaryDirectory() as folder:
        tls, path, port = Tls(Path(folder) / "tls"), Path(folder) / "null", free_port()
        settings = ("log.cleaner.enable=false", "flush.on.acks.all=false")
        command = broker_command(port, Path(folder) / "data", *settings, *tls.broker_settings(port))

        def produced(port: int, topic: str) -> float:
            return produced_rate(port, topic, batch, count, 1, tls.client)

        def fetched(port: int, topic: str) -> float:
            return fetched_rate(port, topic, size, tls.client)

        with running(command, port) as pid, topic_on(port, "compact", tls=tls.client) as topic:
            produce = _figure("produce", (port, pid), topic, produced, size, tls, path, pairs)
            with topic_on(port, "compact", tls=tls.client) as read:
                produced(port, read)
                write_batches(path, batch, count)
                fetch = _figure("fetch", (port, pid), read, fetched, size, tls, path, pairs)
    return [produce, fetch]


def _figure(
    what: str,
    broker: tuple[int, int],
    topic: str,
    rate: Measure,
    size: int,
    tls: Tls,
    path: Path,
    pairs: int,
) -> Figure:
    (port, pid), null_port = broker, free_port()
    null = null_broker_command(f"tls_{what}", null_port, path, tls.key_store)
    with running(null, null_port) as null_pid:
        cpu, null_cpu = CpuMeter(pid), CpuMeter(null_pid)

        def measured(port: int, topic: str, meter: CpuMeter) -> float:
            with meter.over(size):
                return rate(port, topic)

        figure = interleaved(
            f"{what} over TLS, 64 KiB batches" + (", acks=1, no sync" if what == "produce" else ""),
            "MB/s",
            lambda: measured(port, topic, cpu),
            lambda: measured(null_port, NULL_TOPIC, null_cpu),
            limit_is="null broker over Python's ssl: the same bytes",
            pairs=pairs,
        )
    return replace(figure, note=f"{cpu.note} (limit {null_cpu.note})")
