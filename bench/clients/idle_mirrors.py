"""What mirrors cost while their source has nothing new: the CPU time of both brokers, and what the
source stores for it.

All partitions are copied, and every slot is committed, before the minute begins. The same broker without
the link is measured first, and its CPU time is taken off.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from bench.base.batches import keyed_batch
from bench.base.connection import connected, is_listening_within
from bench.base.figure import Figure, of_pairs
from bench.base.processes import (
    START_SECONDS_MAX,
    broker_command,
    cpu_seconds,
    free_port,
    running,
)
from bench.base.raw_protocol import create_topic_request, produce_request
from bench.clients.mirrors import asked
from bench.clients.throughput import pump

TOPIC, PARTITIONS = "idle", 1_000
MINUTE_SECONDS = 60.0
BASE_SECONDS = 15.0
SETTLE_SECONDS = 10.0
GOAL_PERCENT = 3.0


@dataclass(frozen=True, slots=True)
class Minute:
    """What a minute of idle mirrors costs, in percent of a core, and in bytes at the source."""

    target: float
    source: float
    grown_bytes: int


def idle_mirror_figures(pairs: int) -> list[Figure]:
    """Measure the broker that mirrors."""
    with tempfile.TemporaryDirectory() as folder:
        port, data = free_port(), Path(folder) / "source"
        with running(broker_command(port, data), port) as source:
            _fill(port)
            minutes = [
                _minute(port, source, data, Path(folder) / f"target-{number}")
                for number in range(pairs)
            ]
    note = (
        f"source: {min(each.source for each in minutes):.1f} % of a core,"
        f" {max(each.grown_bytes for each in minutes) / 1024:,.0f} KiB/min of committed offsets"
    )
    return [
        of_pairs(
            f"{PARTITIONS:,} mirrored partitions, nothing new at the source",
            "% of a core",
            [(each.target, GOAL_PERCENT) for each in minutes],
            limit_is="the goal",
            note=note,
        )
    ]


def _fill(port: int) -> None:
    batch = keyed_batch(records=1, value_bytes=100, keys=1, seed=1)
    with connected(port) as connection:
        connection.ask(create_topic_request(TOPIC, PARTITIONS, {"retention.ms": "-1"}))
        for partition in range(PARTITIONS):
            pump(connection, [produce_request(TOPIC, partition, batch, acks=1)], 1)


def _minute(source_port: int, source: int, source_data: Path, data: Path) -> Minute:
    port, http_port = free_port(), free_port()
    command = broker_command(port, data, f"http.listener=127.0.0.1:{http_port}")
    with running(command, port) as pid:
        is_listening_within(START_SECONDS_MAX, http_port)
        url = f"http://127.0.0.1:{http_port}/v1/links/bench"
        without = _percents(pid, source, BASE_SECONDS)
        asked(url, {"bootstrap": f"127.0.0.1:{source_port}", "topics": [TOPIC]})
        while not _is_level(url):
            time.sleep(0.5)
        time.sleep(SETTLE_SECONDS)
        before = _offsets_bytes(source_data)
        used = _percents(pid, source, MINUTE_SECONDS)
        grown = _offsets_bytes(source_data) - before
    return Minute(used[0] - without[0], used[1] - without[1], grown)


def _is_level(url: str) -> bool:
    partitions = asked(url)["partitions"]
    return len(partitions) == PARTITIONS and all(each["synced_end"] == 1 for each in partitions)


def _percents(target: int, source: int, seconds: float) -> tuple[float, float]:
    """Returns the CPU time of both processes over so many seconds, in percent of a core."""
    started, before = time.perf_counter(), (cpu_seconds(target), cpu_seconds(source))
    time.sleep(seconds)
    passed = time.perf_counter() - started
    return (
        100 * (cpu_seconds(target) - before[0]) / passed,
        100 * (cpu_seconds(source) - before[1]) / passed,
    )


def _offsets_bytes(data: Path) -> int:
    """Returns the bytes of the committed offsets' segments."""
    return sum(each.stat().st_size for each in data.rglob("*.log") if "__consumer" in str(each))
