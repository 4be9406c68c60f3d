"""The rate at which a mirror catches up with a full topic, beside a client that fetches and writes the
same.

Source and mirror are two brokers of this machine, so both share its cores: what is measured is one core
for each side at best. The probe has the source and a plain loop: fetch 1 MiB, write it to a file,
fdatasync at the end.

Both write new files, and remove them before the next measurement. On a virtual machine the first
write to memory that was never used costs several times the copy: a pair that does not count goes first.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from bench.base.batches import keyed_batch
from bench.base.connection import Connection, connected, is_listening_within
from bench.base.figure import Figure, of_pairs
from bench.base.processes import (
    START_SECONDS_MAX,
    broker_command,
    cpu_seconds,
    free_port,
    running,
)
from bench.base.raw_protocol import create_topic_request, fetch_head, fetch_request, produce_request
from bench.clients.throughput import offset_after, pump

TOPIC, PARTITIONS = "full", 4
PARTITION_BYTES = 256 << 20
FETCH_BYTES = 1 << 20
MEGABYTE = 1e6
SHAPES = {"16 KiB batches": (16, 1_000), "1 KiB batches": (1, 1_000)}
"""The records of a batch, and the bytes of each value."""


def mirror_figures(pairs: int) -> list[Figure]:
    """Measure catching up, for large and for small batches."""
    return [catch_up_figure(label, *shape, pairs) for label, shape in SHAPES.items()]


def catch_up_figure(label: str, records: int, value_bytes: int, pairs: int) -> Figure:
    """Fill a topic once, then mirror it into a new broker and read it by the probe, in turn."""
    batch = keyed_batch(records=records, value_bytes=value_bytes, keys=10_000, seed=1)
    count = PARTITION_BYTES // len(batch)
    size = PARTITIONS * count * len(batch)
    source_cpu, target_cpu = [], []
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        with running(broker_command(port, Path(folder) / "source"), port) as source:
            fill(port, batch, count)
            target = Path(folder) / "target"
            taken = []
            for _ in range(1 + pairs):
                before = cpu_seconds(source)
                seconds, used = mirrored_seconds(port, target, count * records)
                source_cpu.append((cpu_seconds(source) - before) / size * 1e9)
                target_cpu.append(used / size * 1e9)
                shutil.rmtree(target)
                taken.append(
                    (size / seconds / MEGABYTE, size / probe_seconds(port, Path(folder)) / MEGABYTE)
                )
    note = f"CPU-s/GB: source {min(source_cpu):.2f}, mirror {min(target_cpu):.2f}"
    return of_pairs(
        f"mirror catches up, {label}, {PARTITIONS} partitions",
        "MB/s",
        taken[1:],
        limit_is="a client: fetch 1 MiB, write, fdatasync at the end",
        note=note,
    )


def fill(port: int, batch: bytes, count: int) -> None:
    """Create the topic and write `count` batches into each partition."""
    with connected(port) as connection:
        connection.ask(create_topic_request(TOPIC, PARTITIONS, {"retention.ms": "-1"}))
        for partition in range(PARTITIONS):
            pump(connection, [produce_request(TOPIC, partition, batch, acks=1)], count)


def mirrored_seconds(source_port: int, data: Path, end: int) -> tuple[float, float]:
    """Mirror the topic into a new broker. Returns the seconds until all is synced, and its CPU
    seconds."""
    port, http_port = free_port(), free_port()
    command = broker_command(port, data, f"http.listener=127.0.0.1:{http_port}")
    with running(command, port) as pid:
        is_listening_within(START_SECONDS_MAX, http_port)
        url = f"http://127.0.0.1:{http_port}/v1/links/bench"
        before, started = cpu_seconds(pid), time.perf_counter()
        asked(url, {"bootstrap": f"127.0.0.1:{source_port}", "topics": [TOPIC]})
        while not is_done(asked(url), end):
            time.sleep(0.02)
        return time.perf_counter() - started, cpu_seconds(pid) - before


def asked(url: str, link: dict[str, Any] | None = None) -> dict[str, Any]:
    """Create a link, or return one."""
    body = None if link is None else json.dumps(link).encode()
    request = urllib.request.Request(url, body, method="GET" if body is None else "PUT")
    with urllib.request.urlopen(request) as response:
        found: dict[str, Any] = json.load(response)
        return found


def is_done(link: dict[str, Any], end: int) -> bool:
    """Returns whether all partitions are synced up to the end."""
    ends = [each["synced_end"] for each in link["partitions"]]
    return ends == [end] * PARTITIONS


def probe_seconds(port: int, folder: Path) -> float:
    """Read all partitions one after the other into a file. Returns the seconds."""
    path = folder / "probe"
    started = time.perf_counter()
    with connected(port) as connection, path.open("xb") as file:
        for partition in range(PARTITIONS):
            copy_partition(connection, partition, file.fileno())
        os.fdatasync(file.fileno())
    seconds = time.perf_counter() - started
    path.unlink()
    return seconds


def copy_partition(connection: Connection, partition: int, descriptor: int) -> None:
    """Fetch a partition up to its end, and write what comes."""
    offset = 0
    while True:
        frame = fetch_request(TOPIC, partition, offset, bytes_max=FETCH_BYTES)
        answer = connection.ask(frame)
        error, size, position = fetch_head(answer)
        assert error == 0, error
        if size == 0:
            return
        records = answer[position : position + size]
        os.write(descriptor, records)
        offset = offset_after(records)
