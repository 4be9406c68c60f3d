"""How long a broker takes to open its listener, and how much memory it holds when idle."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.connection import connected, is_listening_within
from bench.figure import Figure, interleaved
from bench.processes import (
    REPOSITORY,
    START_SECONDS_MAX,
    StartFailed,
    broker_command,
    free_port,
    resident_bytes,
    running,
)
from bench.raw_protocol import api_versions_request, create_topic_request

BARE_SERVER = """
import asyncio, sys, uvloop

async def serve():
    loop = asyncio.get_running_loop()
    server = await loop.create_server(asyncio.Protocol, "127.0.0.1", int(sys.argv[1]))
    await server.serve_forever()

uvloop.run(serve())
"""
SETTLE_SECONDS = 2.0
TOPICS_EMPTY = 100
PARTITIONS_EACH = 10


def bare_command(port: int) -> list[str]:
    """A uvloop server that does nothing: the floor of any broker in Python."""
    return [sys.executable, "-c", BARE_SERVER, str(port)]


def milliseconds_to_listen(command: Sequence[str], port: int) -> float:
    started = time.perf_counter()
    process = subprocess.Popen(
        command, cwd=REPOSITORY, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        if not is_listening_within(START_SECONDS_MAX, port, lambda: process.poll() is None):
            raise StartFailed(f"{' '.join(command)} does not listen on port {port}")
        return 1e3 * (time.perf_counter() - started)
    finally:
        process.terminate()
        process.wait()


def start_figure(pairs: int) -> Figure:
    """From fork to an accepted connection, with an empty data directory."""
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


def memory_figures(pairs: int) -> list[Figure]:
    """Resident memory when idle, and what an empty partition adds."""
    with tempfile.TemporaryDirectory() as folder:
        port, bare_port = free_port(), free_port()
        command = broker_command(port, Path(folder) / "data")
        idle = interleaved(
            "memory, idle",
            "MB",
            lambda: settled_megabytes(command, port),
            lambda: settled_megabytes(bare_command(bare_port), bare_port),
            limit_is="a bare uvloop server",
            pairs=pairs,
        )
        create_empty_topics(command, port)
        loaded = settled_megabytes(command, port)
    partitions = TOPICS_EMPTY * PARTITIONS_EACH
    each = Figure(
        name="memory, each empty partition",
        unit="KiB",
        measured=(loaded - idle.measured) * 1e6 / 1024 / partitions,
        limit=4.0,
        limit_is="the budget",
        ratio=(loaded - idle.measured) * 1e6 / 1024 / partitions / 4.0,
        pairs=1,
        note=f"{partitions} partitions, after a restart",
    )
    return [idle, each]


def settled_megabytes(command: Sequence[str], port: int) -> float:
    with running(command, port) as pid:
        if command[2] == "server":
            with connected(port) as connection:
                connection.ask(api_versions_request())
        time.sleep(SETTLE_SECONDS)
        return resident_bytes(pid) / 1e6


def create_empty_topics(command: Sequence[str], port: int) -> None:
    with running(command, port), connected(port) as connection:
        for number in range(TOPICS_EMPTY):
            configs = {"cleanup.policy": "compact"}
            connection.ask(create_topic_request(f"empty-{number}", PARTITIONS_EACH, configs))
