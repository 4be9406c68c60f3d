"""The duration of CreateTopics and DeleteTopics for many topics, compared with making the same files.

A new log is a directory with two files. The limit makes them without a broker and without a sync.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.base.connection import Connection, connected
from bench.base.figure import Figure, of_pairs
from bench.base.messages import answer_in, frame_of
from bench.base.processes import broker_command, free_port, running
from protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from protocol.wire.error_codes import ErrorCode

SHAPES = ((100, 4), (1_000, 1))
"""Topics in one request, and partitions of each."""
CREATE_VERSION, DELETE_VERSION = 7, 6
"""The newest, as of Kafka's own clients: the answer has each topic's configuration."""
TIMEOUT_MS = 60_000
MANIFEST_BYTES = 200
SETTLE_SECONDS = 1.5
"""Wait between measurements: the broker syncs, or removes, files after its answer."""

_numbers = itertools.count()


def topic_figures(pairs: int) -> list[Figure]:
    """Measure creation and deletion for each shape."""
    return [figure for shape in SHAPES for figure in shape_figures(*shape, pairs=pairs)]


def shape_figures(topics: int, partitions: int, *, pairs: int) -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        with running(broker_command(port, Path(folder) / "data"), port):
            taken = [
                (
                    milliseconds_of_changes(port, topics, partitions),
                    milliseconds_of_files(Path(folder) / "bare", topics, partitions),
                )
                for _ in range(pairs)
            ]
    of = f"{topics} topics with {partitions} partitions each"
    limit_is = "making the same files without a broker"
    return [
        of_pairs(
            f"time to {what} {of}",
            "ms",
            [(changes[index], files) for changes, files in taken],
            limit_is=limit_is,
        )
        for index, what in enumerate(("create", "delete"))
    ]


def milliseconds_of_changes(port: int, topics: int, partitions: int) -> tuple[float, float]:
    """Returns the milliseconds of one creation and one deletion."""
    run = next(_numbers)
    names = [f"many-{run}-{number}" for number in range(topics)]
    with connected(port) as connection:
        created = milliseconds_to_create(connection, names, partitions)
        time.sleep(SETTLE_SECONDS)
        deleted = milliseconds_to_delete(connection, names)
        time.sleep(SETTLE_SECONDS)
    return created, deleted


def milliseconds_to_create(connection: Connection, names: Sequence[str], partitions: int) -> float:
    """Create topics with one request. Returns the milliseconds until its answer is there."""
    wanted = tuple(
        CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=1, assignments=(), configs=()
        )
        for name in names
    )
    frame = frame_of(CreateTopicsRequest(topics=wanted, timeout_ms=TIMEOUT_MS), CREATE_VERSION)
    started = time.perf_counter()
    answer = connection.ask(frame)
    milliseconds = 1e3 * (time.perf_counter() - started)
    response = answer_in(answer, CreateTopicsResponse, CREATE_VERSION)
    assert {each.error_code for each in response.topics} == {ErrorCode.NONE}, response.topics[0]
    return milliseconds


def milliseconds_to_delete(connection: Connection, names: Sequence[str]) -> float:
    """Delete topics with one request. Returns the milliseconds until its answer is there."""
    wanted = tuple(DeleteTopicState(name=name) for name in names)
    frame = frame_of(DeleteTopicsRequest(topics=wanted, timeout_ms=TIMEOUT_MS), DELETE_VERSION)
    started = time.perf_counter()
    answer = connection.ask(frame)
    milliseconds = 1e3 * (time.perf_counter() - started)
    response = answer_in(answer, DeleteTopicsResponse, DELETE_VERSION)
    assert {each.error_code for each in response.responses} == {ErrorCode.NONE}
    return milliseconds


def milliseconds_of_files(folder: Path, topics: int, partitions: int) -> float:
    run = folder / str(next(_numbers))
    started = time.perf_counter()
    for topic, partition in itertools.product(range(topics), range(partitions)):
        directory = run / str(topic) / str(partition)
        directory.mkdir(parents=True)
        (directory / "log").touch()
        (directory / "manifest").write_bytes(bytes(MANIFEST_BYTES))
    return 1e3 * (time.perf_counter() - started)
