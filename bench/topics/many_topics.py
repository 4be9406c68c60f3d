"""Many small topics, compared with Apache Kafka: to create and delete them, and to recover their logs.

The answer to CreateTopics says that the topics exist; their files follow, here and in Kafka. So a second
figure ends when a batch for every log is acknowledged: with acks=all, which means durable here and in
the page cache in Kafka. A start ends when every log answers, and begins after a `kill -9` of a broker
that has written to every log.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.base.apache_kafka import NAME, kafka_command
from bench.base.batches import keyed_batch
from bench.base.connection import Connection, connected
from bench.base.figure import Figure, of_pairs
from bench.base.messages import answer_in, frame_of
from bench.base.processes import broker_command, free_port, running
from bench.start.startup import milliseconds_to_listen
from bench.topics.topic_changes import milliseconds_to_create, milliseconds_to_delete
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from protocol.wire.error_codes import ErrorCode

TOPICS, PARTITIONS = 100, 4
SHAPE = f"{TOPICS} topics with {PARTITIONS} partitions each"
WARM_UP_ROUNDS = 3
"""Rounds that are not counted: Java compiles what it runs often."""
SETTLE_SECONDS = 2.0
"""Wait between measurements: both brokers continue to write files after their answers."""
LIST_VERSION, PRODUCE_VERSION = 7, 12
"""Later versions of Produce do not name topics."""
END = -1
SERVED_SECONDS_MAX = 120.0


@dataclass(frozen=True, slots=True)
class Changes:
    """The milliseconds of one creation, until all its logs were written to, and of one deletion."""

    created: float
    written: float
    deleted: float


def many_topics_figures(pairs: int) -> list[Figure]:
    """Measure both brokers in turn."""
    return [*_change_figures(pairs), *_restart_figures(pairs)]


def _change_figures(pairs: int) -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        port, peer_port = free_port(), free_port()
        ours = running(broker_command(port, Path(folder) / "ours"), port)
        peer = running(kafka_command(peer_port, Path(folder) / "kafka"), peer_port)
        with ours, peer:
            rounds = [
                (_changes(port, number), _changes(peer_port, number))
                for number in range(WARM_UP_ROUNDS + pairs)
            ][WARM_UP_ROUNDS:]
    return [
        of_pairs(
            f"time to {what} {SHAPE}",
            "ms",
            [(getattr(mine, field), getattr(theirs, field)) for mine, theirs in rounds],
            limit_is=NAME,
            note=f"both after {WARM_UP_ROUNDS} rounds that are not counted",
        )
        for what, field in (
            ("create", "created"),
            ("create and write to", "written"),
            ("delete", "deleted"),
        )
    ]


def _changes(port: int, number: int) -> Changes:
    names = [f"many-{number}-{each}" for each in range(TOPICS)]
    with connected(port) as connection:
        started = time.perf_counter()
        created = milliseconds_to_create(connection, names, PARTITIONS)
        _wait_until_served(connection, names)
        _write_to_all(connection, names)
        written = 1e3 * (time.perf_counter() - started)
        time.sleep(SETTLE_SECONDS)
        deleted = milliseconds_to_delete(connection, names)
        time.sleep(SETTLE_SECONDS)
    return Changes(created, written, deleted)


def _wait_until_served(connection: Connection, names: Sequence[str]) -> None:
    """Return when the broker gives the end of every log."""
    partitions = tuple(
        ListOffsetsPartition(partition_index=each, timestamp=END) for each in range(PARTITIONS)
    )
    topics = tuple(ListOffsetsTopic(name=name, partitions=partitions) for name in names)
    frame = frame_of(ListOffsetsRequest(replica_id=-1, topics=topics), LIST_VERSION)
    deadline = time.monotonic() + SERVED_SECONDS_MAX
    while time.monotonic() < deadline:
        answer = answer_in(connection.ask(frame), ListOffsetsResponse, LIST_VERSION)
        if not any(part.error_code for topic in answer.topics for part in topic.partitions):
            return
        time.sleep(0.002)
    raise TimeoutError(f"not every log answers within {SERVED_SECONDS_MAX:.0f} s")


# ---------------------------------------------------------------- starts after a kill


def _restart_figures(pairs: int) -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        port, peer_port = free_port(), free_port()
        ours = broker_command(port, Path(folder) / "ours")
        peer = kafka_command(peer_port, Path(folder) / "kafka")
        empty = broker_command(port, Path(folder) / "our empty")
        empty_peer = kafka_command(peer_port, Path(folder) / "empty kafka")
        _prepare(ours, port)
        _prepare(peer, peer_port)
        rounds = [
            (
                _milliseconds_to_recover(ours, port),
                _milliseconds_to_recover(peer, peer_port),
                milliseconds_to_listen(empty, port),
                milliseconds_to_listen(empty_peer, peer_port),
            )
            for _ in range(pairs)
        ]
    of = f"start after kill -9, {TOPICS * PARTITIONS} small logs"
    note = "from the start of the process until every log answers"
    return [
        of_pairs(of, "ms", [row[:2] for row in rounds], limit_is=NAME, note=note),
        of_pairs(
            f"{of}, the empty start taken off",
            "ms",
            [(mine - bare, theirs - bare_peer) for mine, theirs, bare, bare_peer in rounds],
            limit_is=NAME,
        ),
    ]


RECOVERED = [f"recovered-{number}" for number in range(TOPICS)]


def _prepare(command: Sequence[str], port: int) -> None:
    """Create the topics, write to every log, and kill the broker."""
    with running(command, port) as pid, connected(port) as connection:
        _wait_until_served(connection, ())
        milliseconds_to_create(connection, RECOVERED, PARTITIONS)
        _wait_until_served(connection, RECOVERED)
        time.sleep(SETTLE_SECONDS)
        _write_to_all(connection, RECOVERED)
        os.kill(pid, signal.SIGKILL)


def _milliseconds_to_recover(command: Sequence[str], port: int) -> float:
    """Returns the duration of a start until every log answers; leaves the state for the next one."""
    started = time.perf_counter()
    with running(command, port) as pid, connected(port) as connection:
        _wait_until_served(connection, RECOVERED)
        milliseconds = 1e3 * (time.perf_counter() - started)
        _write_to_all(connection, RECOVERED)
        os.kill(pid, signal.SIGKILL)
    return milliseconds


def _write_to_all(connection: Connection, names: Sequence[str]) -> None:
    """Write a small batch to every log."""
    batch = memoryview(keyed_batch(records=10, value_bytes=100, keys=10, seed=1))
    data = tuple(PartitionProduceData(index=each, records=batch) for each in range(PARTITIONS))
    topics = tuple(TopicProduceData(name=name, partition_data=data) for name in names)
    request = ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=topics)
    frame = connection.ask(frame_of(request, PRODUCE_VERSION))
    answer = answer_in(frame, ProduceResponse, PRODUCE_VERSION)
    codes = {part.error_code for topic in answer.responses for part in topic.partition_responses}
    assert codes == {ErrorCode.NONE}, codes
