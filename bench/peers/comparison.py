"""Kompakt and a peer, running side by side, and the figure that compares them.

The peer's value takes the place of the machine's limit in each figure, so a ratio above 1 is ours.
The note has the CPU of both processes, which the ratio of rates hides once a core is idle. Apache Kafka
does not sync what it acknowledges; with acks=all we do, unless the figure says otherwise. A peer may
also be another release of Kompakt, with the same settings.
"""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

from bench.base.apache_kafka import NAME as KAFKA
from bench.base.apache_kafka import kafka_command
from bench.base.checkout import THIS_CHECKOUT, Checkout
from bench.base.figure import Figure, interleaved, of_pairs
from bench.base.processes import broker_command, cpu_seconds, free_port, running
from bench.base.tansu import NAME as TANSU
from bench.base.tansu import tansu_command
from bench.base.tls import Tls


@dataclass(slots=True)
class Peer:
    """A server under measurement, and what its requests have cost."""

    port: int
    pid: int
    name: str = "Kompakt"
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
    """Kompakt and a peer, and how much load they get."""

    ours: Peer
    theirs: Peer
    effort: Effort
    label: str
    """The end of the names of all figures: what is special about these servers."""

    @property
    def peers(self) -> tuple[Peer, Peer]:
        """Returns both, Kompakt first."""
        return self.ours, self.theirs

    def limit_is(self, *, is_time: bool) -> str:
        """Returns what a figure is compared with."""
        return f"{self.theirs.name} (less is better)" if is_time else self.theirs.name

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
            limit_is=self.limit_is(is_time=is_time),
            pairs=self.effort.pairs,
        )
        mine, its = (median(peer.micros) for peer in self.peers)
        return replace(figure, note=f"{mine:.0f} µs of CPU a request (peer {its:.0f})")

    def cost_figure(self, name: str) -> Figure:
        """Returns the CPU of a request in the pairs of the figure of that name, measured last."""
        pairs = list(zip(self.ours.micros, self.theirs.micros, strict=True))
        return of_pairs(f"{name}, CPU", "µs", pairs, limit_is=self.limit_is(is_time=True))


@contextmanager
def compared(effort: Effort, *overrides: str, label: str = "") -> Iterator[Comparison]:
    """Run Kompakt with these settings, and Apache Kafka.

    Raises:
        JarsUnavailable: Java or Maven is missing.
    """
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        yield Comparison(
            _kompakt(stack, Path(folder), overrides),
            _kafka(stack, Path(folder)),
            effort,
            label,
        )


@contextmanager
def compared_with_tansu(effort: Effort) -> Iterator[Comparison]:
    """Run Kompakt, and tansu with its records in memory.

    Raises:
        TansuUnavailable: it is not installed.
    """
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        yield Comparison(_kompakt(stack, Path(folder)), _tansu(stack), effort, f", beside {TANSU}")


@contextmanager
def compared_over_tls(effort: Effort) -> Iterator[Comparison]:
    """Run Kompakt and Apache Kafka with TLS; both take the cipher suite that the client offers first.

    Raises:
        JarsUnavailable: Java or Maven is missing.
    """
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        tls = Tls(Path(folder) / "tls")
        yield Comparison(
            _kompakt(stack, Path(folder), tls=tls),
            _kafka(stack, Path(folder), tls=tls),
            effort,
            ", over TLS",
        )


@contextmanager
def compared_with_release(
    effort: Effort, release: Checkout, *overrides: str, label: str = "", over_tls: bool = False
) -> Iterator[Comparison]:
    """Run Kompakt and another release of it, both with these settings."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        tls = Tls(Path(folder) / "tls") if over_tls else None
        ours = _kompakt(stack, Path(folder) / "ours", overrides, tls)
        theirs = _kompakt(stack, Path(folder) / "theirs", overrides, tls, release)
        yield Comparison(ours, replace(theirs, name=release.name), effort, label)


def _kompakt(
    stack: ExitStack,
    folder: Path,
    overrides: Sequence[str] = (),
    tls: Tls | None = None,
    checkout: Checkout = THIS_CHECKOUT,
) -> Peer:
    port, data = free_port(), folder / "data"
    settings = ["log.cleaner.enable=false", *overrides, *(tls.broker_settings(port) if tls else ())]
    command = broker_command(port, data, *settings, python=checkout.python)
    pid = stack.enter_context(running(command, port, folder=checkout.folder))
    return Peer(port, pid, data=data, tls=tls.client if tls else None)


def _kafka(stack: ExitStack, folder: Path, tls: Tls | None = None) -> Peer:
    port, place = free_port(), folder / "kafka"
    properties = tls.kafka_properties(port) if tls else {}
    pid = stack.enter_context(running(kafka_command(port, place, properties=properties), port))
    return Peer(port, pid, KAFKA, place / "data", tls.client if tls else None)


def _tansu(stack: ExitStack) -> Peer:
    port = free_port()
    return Peer(port, stack.enter_context(running(tansu_command(port), port)), TANSU)
