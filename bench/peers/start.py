"""The start of a broker until it has accepted a produce, and its memory."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.base.apache_kafka import NAME as KAFKA
from bench.base.apache_kafka import kafka_command
from bench.base.figure import Figure, interleaved, of_pairs
from bench.base.processes import broker_command, free_port, resident_bytes, running
from bench.base.raw_protocol import produce_request
from bench.clients.throughput import MEGABYTE, topic_on
from bench.peers.comparison import Comparison, Peer
from bench.peers.produce import ONE_RECORD, wait_until_accepted


def start_figure(pairs: int) -> Figure:
    """Measure the time from the command to the first accepted produce, with an empty data directory.

    It includes the creation of the topic. A time: less is better.

    Raises:
        JarsUnavailable: Java or Maven is missing.
    """
    with tempfile.TemporaryDirectory() as folder:
        return interleaved(
            "start to the first produce",
            "s",
            lambda: _kompakt_start_seconds(Path(folder)),
            lambda: _kafka_start_seconds(Path(folder)),
            limit_is=f"{KAFKA} (less is better)",
            pairs=pairs,
        )


def _kompakt_start_seconds(folder: Path) -> float:
    port = free_port()
    return _start_seconds(broker_command(port, folder / f"kompakt-{port}"), port)


def _kafka_start_seconds(folder: Path) -> float:
    port = free_port()
    return _start_seconds(kafka_command(port, folder / f"kafka-{port}"), port)


def _start_seconds(command: Sequence[str], port: int) -> float:
    began = time.perf_counter()
    with running(command, port) as pid, topic_on(port, "delete") as topic:
        frame = produce_request(topic, 0, ONE_RECORD.batch, acks=1)
        wait_until_accepted(Peer(port, pid), [frame])
        return time.perf_counter() - began


def memory_figure(servers: Comparison, *, when: str) -> Figure:
    """Measure the resident memory of both brokers now. Less is better."""
    megabytes = [resident_bytes(peer.pid) / MEGABYTE for peer in servers.peers]
    pair = megabytes[0], megabytes[1]
    limit_is = servers.limit_is(is_time=True)
    return of_pairs(f"memory, {when}{servers.label}", "MB", [pair], limit_is=limit_is)
