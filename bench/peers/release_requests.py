"""Requests of clients to this release of Kompakt beside another one, in pairs.

    KOMPAKT_BENCH_BEFORE=../before python -m bench release_requests

The rows are those of `python -m bench peers`. Each has two figures: the rate, or the time, and the CPU
of a request. Both brokers run all the time, each with the code and the environment of its checkout,
and get the same settings and the same frames from one client process. A row that needs a request or a
property which the other release lacks is skipped; any other failure ends the run.

A checkout beside itself shows how far from 1 a ratio is by chance.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from bench.base.checkout import Checkout, other_checkout
from bench.base.connection import ConnectionClosed
from bench.base.figure import Figure, Skipped
from bench.peers.commit_latency import produce_latency_figure
from bench.peers.comparison import Comparison, Effort, compared_with_release
from bench.peers.rows import (
    BESIDE_LONG_POLLS,
    FETCHES,
    MANY_PARTITIONS,
    PRODUCES,
    QUICK,
    QUICK_LOADS,
    SECONDS,
    SMALL_REQUESTS,
    TLS_ROWS,
    UNSYNCED,
    UNSYNCED_ROWS,
    Row,
)
from bench.peers.served import Served, served_by
from bench.peers.start import memory_figure

LATENCIES: tuple[Row, ...] = tuple(
    partial(produce_latency_figure, percentile=percentile) for percentile in (50, 99)
)


@dataclass(frozen=True, slots=True)
class Section:
    """Rows that are measured with the same two processes."""

    rows: Sequence[Row]
    settings: tuple[str, ...] = ()
    label: str = ""
    over_tls: bool = False


SECTIONS = (
    Section(
        (
            partial(memory_figure, when="idle"),
            *(*PRODUCES, *FETCHES, *SMALL_REQUESTS, *LATENCIES, BESIDE_LONG_POLLS),
            partial(memory_figure, when="after these loads"),
        )
    ),
    Section(UNSYNCED_ROWS, (UNSYNCED,), ", not synced"),
    Section(TLS_ROWS, label=", over TLS", over_tls=True),
    Section(MANY_PARTITIONS),
)
QUICK_SECTION = Section((*QUICK_LOADS, *SMALL_REQUESTS, *LATENCIES, BESIDE_LONG_POLLS))


def release_request_figures(pairs: int) -> Iterator[Figure | Skipped]:
    """Measure every row, with both releases in turn.

    Raises:
        RuntimeError: KOMPAKT_BENCH_BEFORE does not name a checkout with an environment.
    """
    for section in SECTIONS:
        yield from section_figures(other_checkout(), section, Effort(pairs, SECONDS))


def quick_release_request_figures(pairs: int) -> Iterator[Figure | Skipped]:
    """Measure the most different rows, once and for a second each: about two minutes.

    Raises:
        RuntimeError: as `release_request_figures`.
    """
    del pairs
    yield from section_figures(other_checkout(), QUICK_SECTION, QUICK)


def section_figures(
    release: Checkout, section: Section, effort: Effort
) -> Iterator[Figure | Skipped]:
    """Measure the rows of a section, each of which the other release may lack."""
    with compared_with_release(
        effort, release, *section.settings, label=section.label, over_tls=section.over_tls
    ) as servers:
        served = served_by(servers.theirs)
        lack = served.lack_of_property(section.settings)
        for row in section.rows:
            if lack:
                yield skipped(row, section.label, lack)
            else:
                yield from measured_or_skipped(servers, row, served)


def measured_or_skipped(
    servers: Comparison, row: Row, served: Served
) -> tuple[Figure | Skipped, ...]:
    """Returns the rate of a row and the CPU of its requests, or why the other release has no such row.

    Raises:
        ConnectionClosed: a broker closed the connection though the other release serves the request.
    """
    for peer in servers.peers:
        peer.micros.clear()
    try:
        measured = replace(row(servers), note="")
    except ConnectionClosed as closed:
        if (lack := served.lack_of_request(closed.api_key, closed.version)) is None:
            raise
        return (skipped(row, servers.label, lack),)
    # The memory is not of requests.
    return (measured, servers.cost_figure(measured.name)) if servers.ours.micros else (measured,)


def skipped(row: Row, label: str, reason: str) -> Skipped:
    """Returns the reason with a name for a row, which has its own only once it is measured."""
    function, parameters = (
        (row.func, row.keywords) if isinstance(row, partial) else (row, dict[str, object]())
    )
    name = function.__name__.removesuffix("_figure").replace("_", " ")
    values = [f"{each}={getattr(value, 'label', value)}" for each, value in parameters.items()]
    return Skipped(", ".join([name, *values]) + label, reason)
