"""Produce and fetch in MB/s, and the latency of one produce, each compared with its probe.

The probes are null brokers (`bench/base/null_broker.py`): the same client code requests answers of the
same size from them, with as many requests in flight.
"""

from __future__ import annotations

import itertools
import os
import ssl
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median, quantiles
from typing import NamedTuple

from bench.base.batches import keyed_batch
from bench.base.connection import Connection, connected
from bench.base.figure import Figure, interleaved
from bench.base.null_broker import TOPIC as NULL_TOPIC
from bench.base.processes import (
    broker_command,
    cpu_seconds,
    free_port,
    null_broker_command,
    running,
)
from bench.base.raw_protocol import (
    create_topic_request,
    delete_topic_request,
    fetch_head,
    fetch_request,
    produce_errors,
    produce_request,
)
from protocol.records.batch_header import read_header, stamp

MEGABYTE = 1e6
IN_FLIGHT = 8
FETCH_BYTES = 1 << 20
FETCH_ROUNDS = 4
PRODUCED_BYTES = 256 << 20
LATENCY_REQUESTS = 2000
POLICIES = {"plain": "delete", "compacted": "compact"}
topic_numbers = itertools.count()


class Commit(NamedTuple):
    """The time at which a broker answers a produce, and the probe that does the same."""

    label: str
    acks: int
    broker_setting: str
    null_mode: str
    limit_is: str


COMMITS = (
    Commit(
        "acks=1, no sync",
        1,
        "flush.on.acks.all=false",
        "produce",
        "null broker: recv, CRC-32C, write",
    ),
    Commit(
        "acks=all, synced",
        -1,
        "flush.on.acks.all=true",
        "synced",
        "null broker: recv, CRC-32C, write, group fdatasync",
    ),
)


class CpuMeter:
    """Measures the CPU time of a server process per byte of traffic."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._seconds_each_gigabyte: list[float] = []

    @contextmanager
    def over(self, size: int) -> Iterator[None]:
        started = cpu_seconds(self._pid)
        yield
        self._seconds_each_gigabyte.append((cpu_seconds(self._pid) - started) / size * 1e9)

    @property
    def note(self) -> str:
        return f"{median(self._seconds_each_gigabyte):.2f} CPU-s/GB"


def pump(
    connection: Connection, frames: Sequence[bytes], count: int, *, in_flight: int = IN_FLIGHT
) -> float:
    """Send `count` frames in turn with several in flight. Returns the seconds until the last answer."""
    started = time.perf_counter()
    for sent in range(count + in_flight):
        if sent < count:
            connection.send(frames[sent % len(frames)])
        if sent >= in_flight and (errors := produce_errors(connection.receive())):
            raise RuntimeError(f"the broker refused a batch: error {errors}")
    return time.perf_counter() - started


@contextmanager
def topic_on(
    port: int, policy: str, partitions: int = 1, tls: ssl.SSLContext | None = None
) -> Iterator[str]:
    """Create a topic and delete it at the end, so that the page cache stays small."""
    topic = f"load-{next(topic_numbers)}"
    with connected(port, tls) as connection:
        connection.ask(create_topic_request(topic, partitions, {"cleanup.policy": policy}))
        yield topic
        connection.ask(delete_topic_request(topic))


def produce_figures(pairs: int) -> list[Figure]:
    """Measure produce, synced and not, on a plain and on a compacted topic."""
    batches = {
        "64 KiB batches": keyed_batch(records=600, value_bytes=85, keys=100_000, seed=1),
        "1000 x 100 B": keyed_batch(records=1000, value_bytes=84, keys=100_000, seed=2),
    }
    return [
        produce_figure(label, batch, kind, commit, pairs)
        for (label, batch), commit, kind in itertools.product(batches.items(), COMMITS, POLICIES)
    ]


def produce_figure(label: str, batch: bytes, kind: str, commit: Commit, pairs: int) -> Figure:
    count = PRODUCED_BYTES // len(batch)
    size = count * len(batch)
    settings = ("log.cleaner.enable=false", commit.broker_setting)
    with tempfile.TemporaryDirectory() as folder:
        port, null_port = free_port(), free_port()
        broker = broker_command(port, Path(folder) / "data", *settings)
        null = null_broker_command(commit.null_mode, null_port, Path(folder) / "null")
        with running(broker, port) as pid, running(null, null_port) as null_pid:
            cpu, null_cpu = CpuMeter(pid), CpuMeter(null_pid)

            def measure() -> float:
                with topic_on(port, POLICIES[kind]) as topic, cpu.over(size):
                    return produced_rate(port, topic, batch, count, commit.acks)

            def probe() -> float:
                with null_cpu.over(size):
                    return produced_rate(null_port, NULL_TOPIC, batch, count, commit.acks)

            figure = interleaved(
                f"produce, {kind}, {label}, {commit.label}",
                "MB/s",
                measure,
                probe,
                limit_is=commit.limit_is,
                pairs=pairs,
            )
    records = figure.measured * MEGABYTE / len(batch) * read_header(batch).record_count / 1e6
    note = f"{records:.2f} M records/s, {cpu.note} (limit {null_cpu.note})"
    return replace(figure, note=note)


def produced_rate(
    port: int,
    topic: str,
    batch: bytes,
    count: int,
    acks: int,
    tls: ssl.SSLContext | None = None,
) -> float:
    """Returns MB/s of producing a batch `count` times."""
    frame = produce_request(topic, 0, batch, acks=acks)
    with connected(port, tls) as connection:
        return count * len(batch) / MEGABYTE / pump(connection, [frame], count)


def fetch_figures(pairs: int) -> list[Figure]:
    """Measure fetch from the page cache, about 1 MiB an answer, on a plain and a compacted topic."""
    batch = keyed_batch(records=600, value_bytes=85, keys=100_000, seed=3)
    count = PRODUCED_BYTES // len(batch)
    with tempfile.TemporaryDirectory() as folder:
        port, null_port, path = free_port(), free_port(), Path(folder) / "null"
        write_batches(path, batch, count)
        broker = broker_command(port, Path(folder) / "data", "log.cleaner.enable=false")
        null = null_broker_command("fetch", null_port, path)
        with running(broker, port) as pid, running(null, null_port) as null_pid:
            return [
                fetch_figure(kind, batch, count, (port, pid), (null_port, null_pid), pairs)
                for kind in POLICIES
            ]


def write_batches(path: Path, batch: bytes, count: int) -> None:
    """Write the batch `count` times with growing offsets, like a segment file."""
    copy, records = bytearray(batch), read_header(batch).record_count
    with path.open("wb") as file:
        for number in range(count):
            stamp(copy, base_offset=number * records, leader_epoch=1)
            file.write(copy)


def fetch_figure(
    kind: str,
    batch: bytes,
    count: int,
    broker: tuple[int, int],
    null: tuple[int, int],
    pairs: int,
) -> Figure:
    (port, pid), (null_port, null_pid) = broker, null
    size = count * len(batch)
    cpu, null_cpu = CpuMeter(pid), CpuMeter(null_pid)

    def read(port: int, topic: str, meter: CpuMeter) -> float:
        with meter.over(size * FETCH_ROUNDS):
            return median(fetched_rate(port, topic, size) for _ in range(FETCH_ROUNDS))

    with topic_on(port, POLICIES[kind]) as topic:
        produced_rate(port, topic, batch, count, -1)
        figure = interleaved(
            f"fetch, {kind}, {FETCH_BYTES >> 20} MiB answers",
            "MB/s",
            lambda: read(port, topic, cpu),
            lambda: read(null_port, NULL_TOPIC, null_cpu),
            limit_is="bare sendfile of the same bytes",
            pairs=pairs,
        )
    return replace(figure, note=f"{cpu.note} (limit {null_cpu.note})")


def fetched_rate(port: int, topic: str, size: int, tls: ssl.SSLContext | None = None) -> float:
    """Returns MB/s of reading a topic of `size` bytes from its start to its end."""
    received, offset = 0, 0
    with connected(port, tls) as connection:
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
    """Returns the offset after the last batch; all batches of the load have the same size."""
    size = 12 + int.from_bytes(records[8:12], "big")
    return read_header(records[len(records) - size :]).next_offset


def latency_figures(pairs: int) -> list[Figure]:
    """Measure p99 of one produce at a time; the limit is a ping-pong (plus fdatasync for acks=all)."""
    batch = keyed_batch(records=1, value_bytes=84, keys=1, seed=4)
    figures = []
    with tempfile.TemporaryDirectory() as folder:
        port, null_port = free_port(), free_port()
        broker = broker_command(port, Path(folder) / "data")
        ping = null_broker_command("ping", null_port, Path(folder) / "unused")
        with (
            running(broker, port),
            running(ping, null_port),
            topic_on(port, "compact") as topic,
        ):
            for acks, label in ((1, "acks=1"), (-1, "acks=all, synced")):
                frame = produce_request(topic, 0, batch, acks=acks)
                figures.append(
                    interleaved(
                        f"produce latency p99, {label}",
                        "ms",
                        lambda frame=frame: p99_ms(port, frame),  # type: ignore[misc]
                        lambda frame=frame, acks=acks: probe_p99_ms(  # type: ignore[misc]
                            null_port, frame, folder, synced=acks < 0
                        ),
                        limit_is="ping-pong p99" + (" + fdatasync p99" if acks < 0 else ""),
                        pairs=pairs,
                    )
                )
    return figures


def p99_ms(port: int, frame: bytes) -> float:
    """Returns the p99 of one request at a time."""
    with connected(port) as connection:
        return p99_of(lambda: connection.ask(frame))


def p99_of(action: Callable[[], object]) -> float:
    """Returns the p99 of an action's duration, in ms."""
    seconds = []
    for _ in range(LATENCY_REQUESTS):
        started = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - started)
    return 1e3 * quantiles(seconds, n=100)[98]


def probe_p99_ms(port: int, frame: bytes, folder: str, *, synced: bool) -> float:
    """Returns the p99 of a ping-pong with the same frame, with `synced` plus that of an fdatasync."""
    total = p99_ms(port, frame)
    return total + (fdatasync_p99_ms(Path(folder), len(frame)) if synced else 0.0)


def fdatasync_p99_ms(folder: Path, size: int) -> float:
    with (folder / "fdatasync").open("ab", buffering=0) as target:

        def append_and_sync() -> None:
            target.write(bytes(size))
            os.fdatasync(target.fileno())

        return p99_of(append_and_sync)
