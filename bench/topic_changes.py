"""The duration of CreateTopics and DeleteTopics for many topics, compared with making the same files.

A new log is a directory with two files. The limit makes them without a broker and without a sync.
"""

from __future__ import annotations

import asyncio
import itertools
import tempfile
import time
from pathlib import Path

from bench.figure import Figure, of_pairs
from bench.processes import broker_command, free_port, running
from cli.base.broker_client import BrokerClient, connected
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
                    asyncio.run(milliseconds_of_changes(port, topics, partitions)),
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


async def milliseconds_of_changes(port: int, topics: int, partitions: int) -> tuple[float, float]:
    """Returns the milliseconds of one creation and one deletion."""
    run = next(_numbers)
    names = [f"many-{run}-{number}" for number in range(topics)]
    async with connected(f"127.0.0.1:{port}") as client:
        created = await _create(client, names, partitions)
        await asyncio.sleep(SETTLE_SECONDS)
        deleted = await _delete(client, names)
        await asyncio.sleep(SETTLE_SECONDS)
    return created, deleted


async def _create(client: BrokerClient, names: list[str], partitions: int) -> float:
    wanted = tuple(
        CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=1, assignments=(), configs=()
        )
        for name in names
    )
    started = time.perf_counter()
    request = CreateTopicsRequest(topics=wanted, timeout_ms=TIMEOUT_MS)
    response = await client.call(request, CreateTopicsResponse)
    assert {each.error_code for each in response.topics} == {ErrorCode.NONE}
    return 1e3 * (time.perf_counter() - started)


async def _delete(client: BrokerClient, names: list[str]) -> float:
    wanted = tuple(DeleteTopicState(name=name) for name in names)
    started = time.perf_counter()
    request = DeleteTopicsRequest(topics=wanted, timeout_ms=TIMEOUT_MS)
    response = await client.call(request, DeleteTopicsResponse)
    assert {each.error_code for each in response.responses} == {ErrorCode.NONE}
    return 1e3 * (time.perf_counter() - started)


def milliseconds_of_files(folder: Path, topics: int, partitions: int) -> float:
    run = folder / str(next(_numbers))
    started = time.perf_counter()
    for topic, partition in itertools.product(range(topics), range(partitions)):
        directory = run / str(topic) / str(partition)
        directory.mkdir(parents=True)
        (directory / "log").touch()
        (directory / "manifest").write_bytes(bytes(MANIFEST_BYTES))
    return 1e3 * (time.perf_counter() - started)
