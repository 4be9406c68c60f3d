"""One cleaning pass over the same records, from the change of cleanup.policy until the log is clean; and
what a producer to another topic notices of it.

The topic is filled with cleanup.policy=delete and then made compacted. Both brokers have one cleaner
thread without a limit on its rate, and 128 MiB for the map of keys. A log is clean when its size has not
changed for a while; the time ends with its last change.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.base.apache_kafka import NAME as KAFKA
from bench.base.apache_kafka import kafka_command
from bench.base.batches import keyed_batch
from bench.base.connection import Connection, connected
from bench.base.figure import Figure, of_pairs
from bench.base.messages import answer_in, frame_of
from bench.base.processes import broker_command, free_port, running, tree_cpu_seconds
from bench.base.raw_protocol import produce_request
from bench.clients.throughput import pump, topic_on
from bench.peers.comparison import Peer
from bench.peers.paced_produces import PacedProduces
from bench.peers.produce import ONE_RECORD, wait_until_accepted
from protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

RECORDS_IN_BATCH = 1_000
BATCHES = 10_000
KEYS = 1_000_000
VALUE_BYTES = 84
DISTINCT_BATCHES = 2_000
"""They are sent again and again: two million random keys leave few of the keys out."""
SETTINGS = {
    "log.segment.bytes": str(100 << 20),
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.cleaner.threads": "1",
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.dedupe.buffer.size": str(128 << 20),
}
LOG_DIRS_VERSION = 3
ALTER_VERSION = 1
TOPIC_RESOURCE = 2
SET = 0
POLL_SECONDS = 0.02
REST_SECONDS = 5.0
"""A log whose size does not change for so long is clean."""
PASS_SECONDS_MAX = 300.0
PRODUCES_A_SECOND = 1_000
QUIET_SECONDS = 5.0
"""How long the produces run before the pass: Kompakt slows it down by what they took until then."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What two passes of one broker have taken, the second one beside produces."""

    seconds: float
    cpu_seconds: float
    seconds_beside_produces: float
    produce_p99_ms: float


FIGURES: tuple[tuple[str, str, Callable[[Taken], float]], ...] = (
    ("cleaning, from the change of the policy to the end", "s", lambda taken: taken.seconds),
    ("cleaning, CPU time", "s", lambda taken: taken.cpu_seconds),
    (
        f"cleaning, beside {PRODUCES_A_SECOND} produces/s",
        "s",
        lambda taken: taken.seconds_beside_produces,
    ),
    (
        f"produce latency p99 at {PRODUCES_A_SECOND}/s beside cleaning, acks=1",
        "ms",
        lambda taken: taken.produce_p99_ms,
    ),
)
"""The name, the unit and the value of each figure."""


def cleaning_figures(pairs: int) -> list[Figure]:
    """Measure passes over ten million records of a million keys: the seconds and CPU seconds of one, and
    of another one beside produces its seconds and the latency of these.

    Times: less is better.

    Raises:
        JarsUnavailable: Java or Maven is missing.
    """
    batches = [
        keyed_batch(records=RECORDS_IN_BATCH, value_bytes=VALUE_BYTES, keys=KEYS, seed=seed)
        for seed in range(DISTINCT_BATCHES)
    ]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        ours, theirs = free_port(), free_port()
        settings = [f"{name}={value}" for name, value in SETTINGS.items()]
        kompakt = running(broker_command(ours, Path(folder) / "data", *settings), ours)
        command = kafka_command(theirs, Path(folder) / "kafka", properties=SETTINGS)
        kafka = running(command, theirs)
        peers = Peer(ours, stack.enter_context(kompakt)), Peer(theirs, stack.enter_context(kafka))
        # Apache Kafka's first pass is its compiler's.
        taken = [[_taken(peer, batches) for peer in peers] for _ in range(pairs + 1)][1:]
    note = f"{BATCHES * RECORDS_IN_BATCH:,} records of 100 B, {KEYS:,} keys"
    return [
        of_pairs(
            name,
            unit,
            [(value(mine), value(its)) for mine, its in taken],
            limit_is=f"{KAFKA} (less is better)",
            note=note,
        )
        for name, unit, value in FIGURES
    ]


def _taken(peer: Peer, batches: Sequence[bytes]) -> Taken:
    with _filled_log(peer, batches) as (connection, topic):
        began, cpu_began = time.perf_counter(), tree_cpu_seconds(peer.pid)
        ended, cpu_ended = _cleaned(peer, connection, topic)
    return Taken(ended - began, cpu_ended - cpu_began, *_beside_produces(peer, batches))


def _beside_produces(peer: Peer, batches: Sequence[bytes]) -> tuple[float, float]:
    """Returns the seconds of a pass, and the p99 of the produces beside it, in milliseconds."""
    with (
        _filled_log(peer, batches) as (connection, topic),
        topic_on(peer.port, "delete") as other,
        connected(peer.port) as producer,
    ):
        frame = produce_request(other, 0, ONE_RECORD.batch, acks=1)
        wait_until_accepted(peer, [frame])
        produces = PacedProduces(producer, frame, PRODUCES_A_SECOND)
        with produces.running():
            time.sleep(QUIET_SECONDS)
            began = time.perf_counter()
            ended, _ = _cleaned(peer, connection, topic)
    return ended - began, produces.percentile_ms(99, since=began, until=ended)


@contextmanager
def _filled_log(peer: Peer, batches: Sequence[bytes]) -> Iterator[tuple[Connection, str]]:
    """Fill a topic. Yields a connection to its broker, and its name."""
    with connected(peer.port) as connection, topic_on(peer.port, "delete") as topic:
        frames = [produce_request(topic, 0, batch, acks=1) for batch in batches]
        wait_until_accepted(peer, frames[:1])
        pump(connection, frames, BATCHES)
        yield connection, topic


def _cleaned(peer: Peer, connection: Connection, topic: str) -> tuple[float, float]:
    """Let a broker clean a topic. Returns the moment when it was clean, and the broker's CPU seconds
    until then."""
    size = full = _size(connection, topic)
    began = ended = time.perf_counter()
    cpu_ended = tree_cpu_seconds(peer.pid)
    connection.ask(_compacting(topic))
    # The first change comes at the end of the first group of segments.
    while time.perf_counter() < (
        began + PASS_SECONDS_MAX if size == full else ended + REST_SECONDS
    ):
        time.sleep(POLL_SECONDS)
        if (now := _size(connection, topic)) != size:
            size, ended, cpu_ended = now, time.perf_counter(), tree_cpu_seconds(peer.pid)
    if size > full // 2:
        raise RuntimeError(f"{topic} was not cleaned: {size} of {full} bytes are left")
    return ended, cpu_ended


def _compacting(topic: str) -> bytes:
    """Returns the request that makes a topic compacted."""
    change = AlterableConfig(name="cleanup.policy", config_operation=SET, value="compact")
    resource = AlterConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name=topic, configs=(change,)
    )
    request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
    return frame_of(request, ALTER_VERSION)


def _size(connection: Connection, topic: str) -> int:
    """Returns the bytes of a topic's only log."""
    asked = DescribeLogDirsRequest(topics=(DescribableLogDirTopic(topic=topic, partitions=(0,)),))
    answer = connection.ask(frame_of(asked, LOG_DIRS_VERSION))
    (directory,) = answer_in(answer, DescribeLogDirsResponse, LOG_DIRS_VERSION).results
    return directory.topics[0].partitions[0].partition_size
