"""The time that a broker takes to open its listener, and its memory when idle."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.base.connection import connected
from bench.base.figure import Figure, interleaved, of_pairs
from bench.base.processes import broker_command, free_port, resident_bytes, running
from bench.base.raw_protocol import api_versions_request
from bench.start.data_directory import build_data_directory

BARE_SERVER = """
import asyncio, os, sys, uvloop
from xxhash import xxh3_64_intdigest

async def serve(port, *directories):
    for directory in directories:
        read_manifests(directory)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(asyncio.Protocol, "127.0.0.1", int(port))
    await server.serve_forever()

def read_manifests(directory):
    for topic in os.scandir(directory):
        for partition in os.scandir(topic) if "." in topic.name[1:] and topic.is_dir() else ():
            with open(partition.path + "/manifest", "rb") as file:
                xxh3_64_intdigest(file.read())

uvloop.run(serve(*sys.argv[1:]))
"""
SETTLE_SECONDS = 2.0
TOPICS = 100
EMPTY_PARTITION_KIBIBYTES = 4.0


def bare_command(port: int, *data: Path) -> list[str]:
    """Returns the command line of a uvloop server that does nothing: the floor of any Python broker.

    With `data` it first reads the manifests there and verifies their checksums.
    """
    return [sys.executable, "-c", BARE_SERVER, str(port), *map(str, data)]


def milliseconds_to_listen(command: Sequence[str], port: int) -> float:
    started = time.perf_counter()
    with running(command, port):
        return 1e3 * (time.perf_counter() - started)


def start_figure(pairs: int) -> Figure:
    """Measure the time from fork to an accepted connection, with an empty data directory."""
    with tempfile.TemporaryDirectory() as folder:
        port, bare_port = free_port(), free_port()
        return interleaved(
            "time to open the listener, empty",
            "ms",
            lambda: milliseconds_to_listen(broker_command(port, Path(folder) / "data"), port),
            lambda: milliseconds_to_listen(bare_command(bare_port), bare_port),
            limit_is="a bare uvloop server",
            pairs=pairs,
        )


def many_segments_figures(pairs: int) -> list[Figure]:
    """Measure a start after a clean stop with 10,000 segments, in few partitions and in many."""
    return [
        started_with(pairs, partitions_each=1, segments_each=100),
        started_with(pairs, partitions_each=100, segments_each=1),
    ]


def started_with(pairs: int, *, partitions_each: int, segments_each: int) -> Figure:
    partitions = TOPICS * partitions_each
    segments = partitions * segments_each
    with tempfile.TemporaryDirectory() as folder:
        data, port, bare_port = Path(folder) / "data", free_port(), free_port()
        build_data_directory(
            data, topics_count=TOPICS, partitions_each=partitions_each, segments_each=segments_each
        )
        command, bare = broker_command(port, data), bare_command(bare_port, data)
        return interleaved(
            f"time to open the listener, {segments} segments in {partitions} partitions",
            "ms",
            lambda: milliseconds_to_listen(command, port),
            lambda: milliseconds_to_listen(bare, bare_port),
            limit_is="a bare uvloop server that has read the manifests",
            pairs=pairs,
        )


def memory_figures(pairs: int) -> list[Figure]:
    """Measure the resident memory when idle, and the addition by an empty partition."""
    with tempfile.TemporaryDirectory() as folder:
        port, bare_port = free_port(), free_port()
        idle = interleaved(
            "memory, idle",
            "MB",
            lambda: settled_megabytes(broker_command(port, Path(folder) / "idle"), port),
            lambda: settled_megabytes(bare_command(bare_port), bare_port),
            limit_is="a bare uvloop server",
            pairs=pairs,
        )
        data, partitions_each = Path(folder) / "data", 100
        build_data_directory(
            data, topics_count=TOPICS, partitions_each=partitions_each, segments_each=1
        )
        loaded = settled_megabytes(broker_command(port, data), port)
    partitions = TOPICS * partitions_each
    kibibytes = (loaded - idle.measured) * 1e6 / 1024 / partitions
    each = of_pairs(
        "memory, each empty partition",
        "KiB",
        [(kibibytes, EMPTY_PARTITION_KIBIBYTES)],
        limit_is="the budget",
        note=f"{partitions} partitions, after a restart",
    )
    return [idle, each]


def settled_megabytes(command: Sequence[str], port: int) -> float:
    with running(command, port) as pid:
        if command[2] == "cli":
            with connected(port) as connection:
                connection.ask(api_versions_request())
        time.sleep(SETTLE_SECONDS)
        return resident_bytes(pid) / 1e6
