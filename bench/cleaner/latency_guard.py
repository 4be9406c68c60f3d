"""The cleaner's cost for a producer: p99 of one produce at a time beside a busy and an idle cleaner.

One broker has more to clean than the measurement takes. The cleaner's I/O budget, changed live, stops
it for the probe and releases it for the measurement, so both alternate on the same broker and disk, with
the latency guard (`cleaner/pacing/latency_guard.py`) at its defaults.
"""

from __future__ import annotations

import os
import tempfile
import time
import urllib.request
from dataclasses import replace
from pathlib import Path
from statistics import median, quantiles

from bench.base.batches import keyed_batch
from bench.base.connection import Connection, connected
from bench.base.figure import Figure, interleaved
from bench.base.processes import NODE_ID, broker_command, free_port, running
from bench.base.raw_protocol import alter_broker_request, create_topic_request, produce_request
from bench.clients.throughput import MEGABYTE, pump

RATE = "log.cleaner.io.max.bytes.per.second"
HELD, LET_GO = "1", "1.7976931348623157E308"
PARTITIONS, PARTITION_BYTES = 12, 256 << 20
"""More data than a cleaner without a guard can finish during the measurement."""
LEG_SECONDS = 3.0
SETTLE_SECONDS = 0.5
ACKS = ((1, "acks=1"), (-1, "acks=all, synced"))


def latency_guard_figures(pairs: int) -> list[Figure]:
    """Measure with the guard on, as by default, with acks=1 and acks=all; then acks=all without it."""
    on = [guard_figure(acks, label, pairs, guard=True) for acks, label in ACKS]
    return [*on, guard_figure(*ACKS[1], pairs, guard=False)]


def guard_figure(acks: int, label: str, pairs: int, *, guard: bool) -> Figure:
    with tempfile.TemporaryDirectory() as folder:
        port, http_port = free_port(), free_port()
        settings = (
            f"http.listener=http://127.0.0.1:{http_port}",
            f"{RATE}={HELD}",
            f"log.cleaner.latency.guard.enable={'true' if guard else 'false'}",
            "log.cleaner.backoff.ms=100",
        )
        broker = broker_command(port, Path(folder) / "data", *settings)
        with running(broker, port), connected(port) as connection:
            fill(connection)
            figure, rates = measured(connection, http_port, acks, label, pairs, guard=guard)
    return replace(figure, note=f"cleaner meanwhile {median(rates):.0f} MB/s read and written")


def measured(
    connection: Connection, http_port: int, acks: int, label: str, pairs: int, *, guard: bool
) -> tuple[Figure, list[float]]:
    """Returns the figure, and the cleaner's rate in each leg."""
    frame = produce_request(
        "small", 0, keyed_batch(records=1, value_bytes=84, keys=1, seed=4), acks=acks
    )
    rates: list[float] = []

    def cleaning() -> float:
        if not guard:
            refill(connection)
        connection.ask(alter_broker_request(NODE_ID, RATE, LET_GO))
        before = cleaned_bytes(http_port)
        result = p99_ms(connection, frame)
        rates.append((cleaned_bytes(http_port) - before) / MEGABYTE / LEG_SECONDS)
        return result

    def resting() -> float:
        connection.ask(alter_broker_request(NODE_ID, RATE, HELD))
        time.sleep(SETTLE_SECONDS)
        return p99_ms(connection, frame)

    # The guard learns the quiet time's p99 from this.
    resting()
    figure = interleaved(
        f"produce p99 while cleaning, guard {'on' if guard else 'off'}, {label}",
        "ms",
        cleaning,
        resting,
        limit_is="the same while the cleaner rests",
        pairs=pairs,
    )
    return figure, rates


def fill(connection: Connection) -> None:
    """Make two topics: one to clean, with half of its records superseded, and one to produce to."""
    connection.ask(
        create_topic_request(
            "table", PARTITIONS, {"cleanup.policy": "compact", "segment.bytes": str(64 << 20)}
        )
    )
    connection.ask(create_topic_request("small", 1, {"cleanup.policy": "delete"}))
    refill(connection)


def refill(connection: Connection) -> None:
    """Add more to clean than one leg takes, and sync it, so that its write-back is not measured."""
    keys = PARTITION_BYTES // 1000 // 2
    batches = [
        keyed_batch(records=250, value_bytes=1000, keys=keys, seed=each) for each in range(200)
    ]
    for partition in range(PARTITIONS):
        frames = [produce_request("table", partition, batch, acks=1) for batch in batches]
        pump(connection, frames, PARTITION_BYTES // len(batches[0]))
    os.sync()


def p99_ms(connection: Connection, frame: bytes) -> float:
    """Returns the p99 of one produce at a time, for `LEG_SECONDS`."""
    seconds: list[float] = []
    end = time.perf_counter() + LEG_SECONDS
    while (started := time.perf_counter()) < end:
        connection.ask(frame)
        seconds.append(time.perf_counter() - started)
    return 1e3 * quantiles(seconds, n=100)[98]


def cleaned_bytes(http_port: int) -> float:
    """Returns the bytes that the cleaner has read and written so far."""
    with urllib.request.urlopen(f"http://127.0.0.1:{http_port}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    names = ("kompakt_cleaner_read_bytes_total ", "kompakt_cleaner_written_bytes_total ")
    return sum(float(line.split()[1]) for line in lines if line.startswith(names))
