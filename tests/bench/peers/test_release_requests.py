"""Two releases side by side: each runs its own code, and what the other one lacks is skipped."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from bench.base.checkout import Checkout
from bench.base.connection import ConnectionClosed, connected
from bench.base.figure import Figure, Skipped
from bench.base.processes import REPOSITORY
from bench.base.raw_protocol import framed
from bench.peers.comparison import Comparison, Effort, Peer, compared_with_release
from bench.peers.metadata import metadata_figure
from bench.peers.produce import ONE_RECORD, produced_figure
from bench.peers.release_requests import (
    Section,
    measured_or_skipped,
    section_figures,
    skipped,
)
from bench.peers.rows import UNSYNCED, Row
from bench.peers.served import Served, served_by
from protocol.messages.metadata import MetadataRequest
from protocol.wire.api_keys import ApiKey

FUTURE = framed(ApiKey.METADATA, 99, 1, b"")
EFFORT = Effort(pairs=3, seconds=0.02)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """The code and the environment of this checkout, in another folder."""
    folder = tmp_path_factory.mktemp("before")
    for source in REPOSITORY.glob("*/__init__.py"):
        (folder / source.parent.name).symlink_to(source.parent)
    (folder / ".venv").symlink_to(sys.prefix)
    return Checkout(folder, str(folder / ".venv/bin/python"))


@pytest.fixture(scope="module")
def servers(checkout: Checkout) -> Iterator[Comparison]:
    with compared_with_release(EFFORT, checkout, UNSYNCED, label=", not synced") as comparison:
        yield comparison


def idle(*costs: tuple[float, float]) -> Comparison:
    """Servers that do not run, with the CPU of requests in pairs."""
    ours, theirs = Peer(0, 0), Peer(0, 0, "Kompakt at v1")
    for mine, its in costs:
        ours.micros.append(mine)
        theirs.micros.append(its)
    return Comparison(ours, theirs, EFFORT, "")


def unserved_figure(servers: Comparison) -> Figure:
    with connected(servers.theirs.port) as connection:
        connection.ask(FUTURE)
    raise AssertionError("the broker has answered")


def test_each_release_runs_in_its_checkout_with_the_python_of_its_environment(
    servers: Comparison, checkout: Checkout
) -> None:
    places = [Path(f"/proc/{peer.pid}/cwd").readlink() for peer in servers.peers]
    commands = [
        Path(f"/proc/{peer.pid}/cmdline").read_bytes().split(b"\0") for peer in servers.peers
    ]

    assert places == [REPOSITORY, checkout.folder]
    assert [command[0].decode() for command in commands] == [sys.executable, checkout.python]
    assert all(UNSYNCED.encode() in command for command in commands)


def test_a_row_has_a_rate_and_the_cpu_of_a_request_with_the_spread_of_the_pairs(
    servers: Comparison, checkout: Checkout
) -> None:
    row = partial(metadata_figure, connections=2)
    rate, cost = measured_or_skipped(servers, row, served_by(servers.theirs))

    assert isinstance(rate, Figure)
    assert isinstance(cost, Figure)
    name = "metadata, one topic, 2 connections, not synced"
    assert (rate.name, rate.unit, rate.limit_is) == (name, "requests/s", checkout.name)
    assert (cost.name, cost.unit) == (f"{name}, CPU", "µs")
    assert cost.limit_is == f"{checkout.name} (less is better)"
    for figure in (rate, cost):
        assert figure.pairs == EFFORT.pairs
        assert 0 < figure.ratio_from <= figure.ratio <= figure.ratio_to
    # A processor is busy for a part of each second at most.
    assert 0 < rate.measured * cost.measured / 1e6 < (os.cpu_count() or 1)


def test_a_row_whose_request_the_other_release_does_not_serve_is_skipped_and_the_next_one_is_not(
    servers: Comparison,
) -> None:
    served = served_by(servers.theirs)

    (missing,) = measured_or_skipped(servers, unserved_figure, served)

    last = MetadataRequest.versions[1]
    assert missing == Skipped(
        "unserved, not synced", f"it serves Metadata in versions 0 to {last}, not 99"
    )
    taken = measured_or_skipped(servers, partial(metadata_figure, connections=1), served)
    assert [type(each) for each in taken] == [Figure, Figure]


def test_the_properties_of_a_running_release_are_those_that_it_knows(servers: Comparison) -> None:
    served = served_by(servers.theirs)

    assert served.lack_of_property([UNSYNCED]) is None
    assert served.lack_of_property(["flush.in.turns=true"]) == "it does not know flush.in.turns"


def test_no_row_is_measured_with_a_property_that_the_other_release_does_not_know(
    checkout: Checkout,
) -> None:
    rows: list[Row] = [unserved_figure, partial(metadata_figure, connections=1)]
    section = Section(rows, ("flush.in.turns=true",), ", in turns")

    assert list(section_figures(checkout, section, EFFORT)) == [
        Skipped("unserved, in turns", "it does not know flush.in.turns"),
        Skipped("metadata, connections=1, in turns", "it does not know flush.in.turns"),
    ]


def test_a_connection_that_is_closed_after_a_served_request_ends_the_run() -> None:
    def closing(_: Comparison) -> Figure:
        raise ConnectionClosed(FUTURE)

    serves = Served({ApiKey.METADATA: (0, 99)}, frozenset())
    with pytest.raises(ConnectionClosed, match="key 3 and version 99"):
        measured_or_skipped(idle(), closing, serves)


def test_the_cpu_of_the_row_before_is_not_that_of_a_row_without_requests() -> None:
    memory = Figure(
        name="memory",
        unit="MB",
        measured=1,
        limit=1,
        limit_is="",
        ratio=1,
        ratio_from=1,
        ratio_to=1,
        pairs=1,
    )

    taken = measured_or_skipped(idle((20.0, 30.0)), lambda _: memory, Served({}, frozenset()))

    assert taken == (memory,)


def test_the_ratio_of_the_cpu_is_the_median_of_the_pairs_own() -> None:
    cost = idle((20.0, 10.0), (30.0, 60.0), (40.0, 40.0)).cost_figure("a row")

    assert (cost.measured, cost.limit) == (30.0, 40.0)
    assert (cost.ratio, cost.ratio_from, cost.ratio_to) == (1.0, 0.5, 2.0)


def test_a_row_that_was_not_measured_is_named_by_what_it_would_have_measured() -> None:
    row = partial(produced_figure, load=ONE_RECORD, acks=1, connections=16)

    assert skipped(row, ", over TLS", "why") == Skipped(
        "produced, load=one record, acks=1, connections=16, over TLS", "why"
    )
