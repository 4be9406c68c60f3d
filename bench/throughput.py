"""Produce and fetch in MB/s, and the latency of one produce, each beside its probe."""

from __future__ import annotations

import itertools
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import quantiles

from bench.batches import keyed_batch
from bench.connection import Connection, connected
from bench.figure import Figure, interleaved
from bench.null_broker import FETCH_REQUEST, PING_REQUEST_BYTES
from bench.processes import broker_command, free_port, null_broker_command, running
from bench.raw_protocol import (
    create_topic_request,
    fetch_head,
    fetch_request,
    produce_error,
    produce_request,
)

MEGABYTE = 1e6
IN_FLIGHT = 8
FETCH_BYTES = 1 << 20
PRODUCED_BYTES = 256 << 20
TOPICS = {"plain": "delete", "compacted": "compact"}
topic_numbers = itertools.count()


def pump(connection: Connection, frame: bytes, count: int, check: bool) -> float:
    """Send `frame` `count` times with several under way; the seconds until the last answer."""
    started = time.perf_counter()
    for sent in range(count + IN_FLIGHT):
        if sent < count:
            connection.send(frame)
        if sent >= IN_FLIGHT:
            answer = connection.receive()
            if check and produce_error(answer)[0] != 0:
                raise RuntimeError(f"the broker refused a batch: error {produce_error(answer)[0]}")
    return time.perf_counter() - started


def new_topic(port: int, policy: str) -> str:
    topic = f"load-{next(topic_numbers)}"
    with connected(port) as connection:
        connection.ask(create_topic_request(topic, 1, {"cleanup.policy": policy}))
    return topic


def produce_figures(pairs: int) -> list[Figure]:
    """Produce with acks=1 and acks=all on a plain and on a compacted topic."""
    batches = {
        "64 KiB batches": keyed_batch(records=600, value_bytes=85, keys=100_000, seed=1),
        "1000 x 100 B": keyed_batch(records=1000, value_bytes=84, keys=100_000, seed=2),
    }
    figures = []
    for (label, batch), (kind, policy), acks in itertools.product(
        batches.items(), TOPICS.items(), (1, -1)
    ):
        figures.append(produce_figure(label, batch, kind, policy, acks, pairs))
    return figures


def produce_figure(
    label: str, batch: bytes, kind: str, policy: str, acks: int, pairs: int
) -> Figure:
    count = PRODUCED_BYTES // len(batch)
    records = int.from_bytes(batch[57:61], "big")
    with tempfile.TemporaryDirectory() as folder:
        port, null_port = free_port(), free_port()
        broker = broker_command(port, Path(folder) / "data", "log.cleaner.enable=false")
        null = null_broker_command("produce", null_port, Path(folder) / "null")
        with running(broker, port), running(null, null_port):

            def measure() -> float:
                frame = produce_request(new_topic(port, policy), 0, batch, acks=acks)
                with connected(port) as connection:
                    return (
                        count * len(batch) / MEGABYTE / pump(connection, frame, count, check=True)
                    )

            def probe() -> float:
                frame = produce_request("null", 0, batch, acks=acks)
                with connected(null_port) as connection:
                    return (
                        count * len(batch) / MEGABYTE / pump(connection, frame, count, check=False)
                    )

            figure = interleaved(
                f"produce, {kind}, {label}, acks={'all' if acks < 0 else acks}",
                "MB/s",
                measure,
                probe,
                limit_is="null broker: recv, CRC-32C, write",
                pairs=pairs,
            )
    rate = figure.measured * MEGABYTE / len(batch) * records / 1e6
    return replace(figure, note=f"{rate:.2f} M records/s")


def fetch_figures(pairs: int) -> list[Figure]:
    """Fetch from the page cache, at least 1 MiB an answer, on a plain and on a compacted topic."""
    batch = keyed_batch(records=600, value_bytes=85, keys=100_000, seed=3)
    count = PRODUCED_BYTES // len(batch)
    figures = []
    with tempfile.TemporaryDirectory() as folder:
        port, null_port, path = free_port(), free_port(), Path(folder) / "null"
        path.write_bytes(batch * count)
        broker = broker_command(port, Path(folder) / "data", "log.cleaner.enable=false")
        with (
            running(broker, port),
            running(null_broker_command("fetch", null_port, path), null_port),
        ):
            for kind, policy in TOPICS.items():
                topic = new_topic(port, policy)
                with connected(port) as connection:
                    pump(connection, produce_request(topic, 0, batch, acks=-1), count, check=True)
                figures.append(
                    interleaved(
                        f"fetch, {kind}, {FETCH_BYTES >> 20} MiB answers",
                        "MB/s",
                        lambda topic=topic: fetch_all(port, topic, len(batch) * count),  # type: ignore[misc]
                        lambda: sendfile_all(null_port, len(batch) * count),
                        limit_is="bare sendfile of the same bytes",
                        pairs=pairs,
                    )
                )
    return figures


def fetch_all(port: int, topic: str, size: int) -> float:
    """MB/s of reading a topic of `size` bytes from its start to its end."""
    received, offset = 0, 0
    with connected(port) as connection:
        started = time.perf_counter()
        while received < size:
            answer = connection.ask(fetch_request(topic, 0, offset, bytes_max=FETCH_BYTES))
            error, records_bytes, position = fetch_head(answer)
            if error != 0 or records_bytes <= 0:
                raise RuntimeError(
                    f"fetch at offset {offset} answered error {error}, {records_bytes} bytes"
                )
            received += records_bytes
            offset = offset_after(answer[position : position + records_bytes])
        return received / MEGABYTE / (time.perf_counter() - started)


def offset_after(records: memoryview) -> int:
    """The offset that follows the last batch; all batches of the load have one size."""
    size = 12 + int.from_bytes(records[8:12], "big")
    last = records[len(records) - size :]
    return int.from_bytes(last[:8], "big") + int.from_bytes(last[23:27], "big") + 1


def sendfile_all(port: int, size: int) -> float:
    with connected(port) as connection:
        started = time.perf_counter()
        for position in range(0, size, FETCH_BYTES):
            connection.ask(FETCH_REQUEST.pack(position, min(FETCH_BYTES, size - position)))
        return size / MEGABYTE / (time.perf_counter() - started)


def latency_figures(pairs: int) -> list[Figure]:
    """p99 of one produce at a time, beside a loopback ping-pong (and fdatasync for acks=all)."""
    batch = keyed_batch(records=1, value_bytes=84, keys=1, seed=4)
    figures = []
    with tempfile.TemporaryDirectory() as folder:
        port, null_port = free_port(), free_port()
        broker = broker_command(port, Path(folder) / "data")
        ping = null_broker_command("ping", null_port, Path(folder) / "unused")
        with running(broker, port), running(ping, null_port):
            topic = new_topic(port, "compact")
            for acks, label in ((1, "acks=1"), (-1, "acks=all, synced")):
                frame = produce_request(topic, 0, batch, acks=acks)
                figures.append(
                    interleaved(
                        f"produce latency p99, {label}",
                        "ms",
                        lambda frame=frame: p99_ms(port, frame, 2000),  # type: ignore[misc]
                        lambda acks=acks: probe_p99_ms(null_port, folder, synced=acks < 0),  # type: ignore[misc]
                        limit_is="ping-pong p99" + (" + fdatasync p99" if acks < 0 else ""),
                        pairs=pairs,
                    )
                )
    return figures


def p99_ms(port: int, frame: bytes, count: int) -> float:
    with connected(port) as connection:
        return 1e3 * quantiles(timed(lambda: connection.ask(frame), count), n=100)[98]


def timed(action: Callable[[], object], count: int) -> list[float]:
    seconds = []
    for _ in range(count):
        started = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - started)
    return seconds


def probe_p99_ms(port: int, folder: str, *, synced: bool) -> float:
    total = p99_ms(port, bytes(PING_REQUEST_BYTES), 2000)
    return total + (fdatasync_p99_ms(Path(folder)) if synced else 0.0)


def fdatasync_p99_ms(folder: Path) -> float:
    with (folder / "fdatasync").open("ab", buffering=0) as target:

        def append_and_sync() -> None:
            target.write(bytes(200))
            os.fdatasync(target.fileno())

        return 1e3 * quantiles(timed(append_and_sync, 1000), n=100)[98]
