"""Both brokers, running side by side, and the figure that compares them.

The peer's value takes the place of the machine's limit in each figure, so a ratio above 1 is ours.
The note has the CPU of both processes, which the ratio of rates hides once a core is idle. Apache Kafka
does not sync what it acknowledges; with acks=all we do, unless the figure says otherwise.
"""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

from bench.base.apache_kafka import NAME as KAFKA
from bench.base.apache_kafka import kafka_command
from bench.base.figure import Figure, interleaved
from bench.base.processes import broker_command, cpu_seconds, free_port, running
from bench.base.tls import Tls

OUR_DATA, THEIR_DATA = "data", "kafka/data"


@dataclass(slots=True)
class Peer:
    """A server under measurement, and what its requests have cost."""

    port: int
    pid: int
    data: Path = Path()
    """Its data directory."""
    tls: ssl.SSLContext | None = None
    """What its clients connect with, if its listener has TLS."""
    micros: list[float] = field(default_factory=list)

    @contextmanager
    def costing(self, requests: int) -> Iterator[None]:
        """Note the CPU of each of so many requests."""
        before = cpu_seconds(self.pid)
        yield
        self.micros.append((cpu_seconds(self.pid) - before) / requests * 1e6)


@dataclass(frozen=True, slots=True)
class Effort:
    """How often a row loads each server, and for how long."""

    pairs: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """Kompakt and Apache Kafka, and how much load they get."""

    ours: Peer
    theirs: Peer
    effort: Effort
    label: str
    """The end of the names of all figures: what is special about these servers."""

    @property
    def peers(self) -> tuple[Peer, Peer]:
        """Returns both, Kompakt first."""
        return self.ours, self.theirs

    def figure(
        self, name: str, unit: str, rate: Callable[[Peer], float], *, is_time: bool = False
    ) -> Figure:
        """Measure both in turn. `rate` notes the CPU of its requests with `Peer.costing`.

        Args:
            is_time: whether `rate` returns a time.
        """
        for peer in self.peers:
            rate(peer)  # Apache Kafka's first minute is its compiler's.
            peer.micros.clear()
        figure = interleaved(
            f"{name}{self.label}",
            unit,
            lambda: rate(self.ours),
            lambda: rate(self.theirs),
            limit_is=f"{KAFKA} (less is better)" if is_time else KAFKA,
            pairs=self.effort.pairs,
        )
        mine, its = (median(peer.micros) for peer in self.peers)
        return replace(figure, note=f"{mine:.0f} µs of CPU a request (peer {its:.0f})")


@contextmanager
def compared(effort: Effort, *overrides: str, label: str = "") -> Iterator[Comparison]:
    """Run both brokers, ours with these settings.

    Raises:
        JarsUnavailable: Java or Maven is missing.
    """
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        ours, theirs = free_port(), free_port()
        yield Comparison(
            Peer(
                ours,
                stack.enter_context(_kompakt(ours, Path(folder), overrides)),
                Path(folder) / OUR_DATA,
            ),
            Peer(
                theirs,
                stack.enter_context(_kafka(theirs, Path(folder), {})),
                Path(folder) / THEIR_DATA,
            ),
            effort,
            label,
        )


@contextmanager
def compared_over_tls(effort: Effort) -> Iterator[Comparison]:
    """Run both brokers with TLS; both take the cipher suite that the same client offers first.

    Raises:
        JarsUnavailable: Java or Maven is missing.
    """
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        tls, ours, theirs = Tls(Path(folder) / "tls"), free_port(), free_port()
        kompakt = _kompakt(ours, Path(folder), tls.broker_settings(ours))
        kafka = _kafka(theirs, Path(folder), tls.kafka_properties(theirs))
        yield Comparison(
            Peer(ours, stack.enter_context(kompakt), Path(folder) / OUR_DATA, tls.client),
            Peer(theirs, stack.enter_context(kafka), Path(folder) / THEIR_DATA, tls.client),
            effort,
            ", over TLS",
        )


def _kompakt(port: int, folder: Path, overrides: Sequence[str]) -> AbstractContextManager[int]:
    command = broker_command(port, folder / OUR_DATA, "log.cleaner.enable=false", *overrides)
    return running(command, port)


def _kafka(port: int, folder: Path, properties: Mapping[str, str]) -> AbstractContextManager[int]:
    return running(kafka_command(port, folder / "kafka", properties=properties), port)
