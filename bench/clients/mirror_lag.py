"""How far a mirror is behind at half load: the time from a batch's acknowledgement at the source until a
consumer gets it from the mirror.

First as much as possible is produced with acks=all: the time until the mirror has it is the highest rate
that the source sustains while the mirror follows. Then half of that rate is produced, on a schedule,
while a consumer in a process of its own reads the mirror. The probe is the same consumer at the source,
which writes what it gets to a file, and syncs it, before it counts; the note has the same without the
file. Batches are matched by their offsets, because no timestamp in a record can say when its batch was
acknowledged. All processes share the cores of one machine.

`KOMPAKT_BENCH_LAG_SECONDS` sets how long each measurement produces.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

from bench.base.batches import keyed_batch
from bench.base.connection import Connection, connected, is_listening_within
from bench.base.figure import Figure, of_pairs
from bench.base.processes import START_SECONDS_MAX, broker_command, free_port, running
from bench.base.raw_protocol import create_topic_request, produce_request, produced_offset
from bench.clients.arrivals import Arrivals, consuming
from bench.clients.mirrors import MEGABYTE, PARTITIONS, SHAPES, asked, is_done
from bench.clients.throughput import pump
from protocol.records.batch_header import read_header

SECONDS = float(os.environ.get("KOMPAKT_BENCH_LAG_SECONDS", "10"))
TOPIC = "followed"
CONFIG = {
    "retention.ms": "-1",
    "retention.bytes": str(256 << 20),
    "segment.bytes": str(64 << 20),
}
RETENTION = "log.retention.check.interval.ms=5000"
"""With this a long measurement does not fill the disk."""
BURST_SECONDS = 0.001
"""The longest pause of the producer: what is due by then is sent at once."""
LOOK_SECONDS = 0.01
IN_FLIGHT = 256
"""Enough batches that a sync never waits for the next ones."""
HIGHEST_BYTES = 128 << 20
"""What is produced to find the highest rate."""
LEAST_MS = 0.01
GOAL_MS = 50.0
PROBE_IS = "the same consumer at the source: fetch, write, fdatasync"


@dataclass(frozen=True, slots=True)
class Lags:
    """Quantiles of the lag, in milliseconds."""

    p50: float
    p99: float


@dataclass(frozen=True, slots=True)
class Pair:
    """The lags at the mirror, of a copy, and at the source, and the highest rate before."""

    mirror: Lags
    copy: Lags
    source: Lags
    highest: float
    """In MB/s."""


@dataclass(frozen=True, slots=True)
class Brokers:
    """The ports of a source and of the broker that mirrors it, and the URL of the link."""

    source: int
    mirror: int
    link: str


def mirror_lag_figures(pairs: int) -> list[Figure]:
    """Measure the lag with large and with small batches."""
    return [figure for label, shape in SHAPES.items() for figure in _lags(label, *shape, pairs)]


def _lags(label: str, records: int, value_bytes: int, pairs: int) -> list[Figure]:
    batch = keyed_batch(records=records, value_bytes=value_bytes, keys=10_000, seed=1)
    with tempfile.TemporaryDirectory() as folder, _mirrored(Path(folder)) as brokers:
        load = Load(batch, brokers, Path(folder))
        taken = [load.measure() for _ in range(pairs)]
    highest = median(each.highest for each in taken)
    read = median(each.source.p99 for each in taken)
    note = (
        f"half of {highest:.0f} MB/s, acks=all; goal: p99 < {GOAL_MS:.0f} ms;"
        f" the source without the file: p99 {read:.2f} ms"
    )
    name = f"at half load, {label}, {PARTITIONS} partitions"
    return [
        of_pairs(f"mirror lag {quantile} {name}", "ms", values, limit_is=PROBE_IS, note=note)
        for quantile, values in (
            ("p50", [(each.mirror.p50, each.copy.p50) for each in taken]),
            ("p99", [(each.mirror.p99, each.copy.p99) for each in taken]),
        )
    ]


@contextmanager
def _mirrored(folder: Path) -> Iterator[Brokers]:
    """Run a source with a topic, and a broker that mirrors it."""
    port, mirror, http = free_port(), free_port(), free_port()
    listener = f"http.listener=127.0.0.1:{http}"
    with (
        running(broker_command(port, folder / "source", RETENTION), port),
        running(broker_command(mirror, folder / "mirror", RETENTION, listener), mirror),
    ):
        with connected(port) as connection:
            connection.ask(create_topic_request(TOPIC, PARTITIONS, CONFIG))
        is_listening_within(START_SECONDS_MAX, http)
        link = f"http://127.0.0.1:{http}/v1/links/bench"
        asked(link, {"bootstrap": f"127.0.0.1:{port}", "topics": [TOPIC]})
        while not is_done(asked(link), 0):
            time.sleep(LOOK_SECONDS)
        yield Brokers(port, mirror, link)


class Load:
    """The producer of a topic that a mirror follows."""

    def __init__(self, batch: bytes, brokers: Brokers, folder: Path) -> None:
        """
        Args:
            folder: where the consumer has its files.
        """
        # Constant after construction
        self._batch = batch
        self._records = read_header(batch).record_count
        self._frames = [produce_request(TOPIC, each, batch, acks=-1) for each in range(PARTITIONS)]
        self._brokers = brokers
        self._folder = folder
        # State
        self._end = 0
        """The end offset of each partition: they are written in turn."""

    def measure(self) -> Pair:
        """Measure the highest rate, and the lags at half of it."""
        with connected(self._brokers.source) as connection:
            highest = self._highest_rate(connection)
            mirror, copy, source = (
                self._lags(connection, port, highest / 2, copies=copies)
                for port, copies in (
                    (self._brokers.mirror, False),
                    (self._brokers.source, True),
                    (self._brokers.source, False),
                )
            )
        return Pair(mirror, copy, source, highest * len(self._batch) / MEGABYTE)

    def _highest_rate(self, connection: Connection) -> float:
        """Returns the batches a second that are produced and mirrored."""
        count = self._whole_turns(HIGHEST_BYTES / len(self._batch))
        started = time.perf_counter()
        pump(connection, self._frames, count, in_flight=IN_FLIGHT)
        self._produced(count)
        while not is_done(asked(self._brokers.link), self._end):
            time.sleep(LOOK_SECONDS)
        return count / (time.perf_counter() - started)

    def _lags(self, connection: Connection, port: int, rate: float, *, copies: bool) -> Lags:
        """Produce so many batches a second while a consumer reads at a port, and copies it or not."""
        count = self._whole_turns(rate * SECONDS)
        starts = [self._end] * PARTITIONS
        with consuming(port, TOPIC, starts, self._folder, copies=copies) as consumer:
            acknowledged = paced(connection, self._frames, count, rate)
            self._produced(count)
            arrived = consumer.read_up_to([self._end] * PARTITIONS)
        return lags(acknowledged, arrived)

    def _whole_turns(self, count: float) -> int:
        return max(int(count) // PARTITIONS, 1) * PARTITIONS

    def _produced(self, count: int) -> None:
        self._end += count // PARTITIONS * self._records


def paced(connection: Connection, frames: Sequence[bytes], count: int, rate: float) -> Arrivals:
    """Send frames of one partition each in turn, so many a second, however late the answers are.

    Returns when each batch was acknowledged.
    """
    acknowledged = dict[tuple[int, int], int]()
    started, sent, received = time.perf_counter(), 0, 0
    while received < count:
        due = min(count, 1 + int((time.perf_counter() - started) * rate))
        if sent < due:
            connection.send(b"".join(frames[each % len(frames)] for each in range(sent, due)))
            sent = due
        if received == sent:
            time.sleep(BURST_SECONDS)
        elif connection.has_answer_within(BURST_SECONDS):
            answer, now_ns = connection.receive(), time.monotonic_ns()
            acknowledged[received % len(frames), produced_offset(answer)] = now_ns
            received += 1
    return acknowledged


def lags(acknowledged: Arrivals, arrived: Arrivals) -> Lags:
    """Returns the quantiles of the time from the one to the other.

    A consumer may have a batch a moment before its producer gets the answer: that counts as no time.
    """
    every = [(arrived[each] - at_ns) / 1e6 for each, at_ns in acknowledged.items()]
    of_hundred = quantiles((max(each, LEAST_MS) for each in every), n=100)
    return Lags(p50=of_hundred[49], p99=of_hundred[98])
