"""`python -m bench [--quick] [GROUP ...]`: measure, print tables, write bench/results/<group>.json.

A quick run measures each figure once, in some groups only a few figures, and writes no results.
KOMPAKT_BENCH_PAIRS is the number of measurements of each figure and its probe, KOMPAKT_BENCH_NOTE a
note about the state of the machine for readers of the results, KOMPAKT_BENCH_BEFORE a checkout of
another release for the groups that measure two (`bench/base/checkout.py`).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bench.base.figure import Figure, Skipped
from bench.cleaner.aborted import aborted_figures
from bench.cleaner.cleaning import pass_figures
from bench.cleaner.copy_runs import copy_figures
from bench.cleaner.erasure import erasure_figures
from bench.cleaner.events import event_figures
from bench.cleaner.expiry import expiry_figures
from bench.cleaner.features_in_use import features_in_use_figures
from bench.cleaner.fences import fence_figures
from bench.cleaner.history import history_figures
from bench.cleaner.kernel import kernel_figures
from bench.cleaner.latency_guard import latency_guard_figures
from bench.cleaner.many_keys import many_keys_figures
from bench.cleaner.mostly_clean import mostly_clean_figures
from bench.cleaner.release_costs import release_figures
from bench.cleaner.strategies import strategy_figures
from bench.cleaner.verified import verification_figures
from bench.cleaner.workers import workers_figures
from bench.clients.authorization import authorization_figures
from bench.clients.checkpoints import checkpoint_figures
from bench.clients.compressed import compressed_figures
from bench.clients.follower_append import follower_append_figures
from bench.clients.group_commit import group_commit_figures
from bench.clients.groups import group_figures
from bench.clients.idle_connections import idle_connection_figures
from bench.clients.idle_mirrors import idle_mirror_figures
from bench.clients.key_lookups import key_lookup_figures
from bench.clients.latest_view import latest_view_figures
from bench.clients.mirror_lag import mirror_lag_figures
from bench.clients.mirrors import mirror_figures
from bench.clients.redis import redis_figures
from bench.clients.throughput import fetch_figures, latency_figures, produce_figures
from bench.clients.tls_throughput import tls_throughput_figures
from bench.peers.release_requests import quick_release_request_figures, release_request_figures
from bench.peers.rows import peer_figures, quick_peer_figures, tansu_figures
from bench.peers.two_brokers import two_broker_figures
from bench.replog.placements import placement_figures
from bench.replog.snapshotters import snapshotter_figures
from bench.start.recovery import unclean_start_figures
from bench.start.startup import many_segments_figures, memory_figures, start_figure
from bench.topics.many_topics import many_topics_figures
from bench.topics.topic_changes import topic_figures
from cleaner.rules.text import count_text


def _distributed_figures(pairs: int) -> list[Figure]:
    # Spark is imported only by groups that measure it.
    from bench.pipeline.distributed import distributed_figures

    return distributed_figures(pairs)


def _table_value_figures(pairs: int) -> list[Figure]:
    from bench.pipeline.table_values import table_value_figures

    return table_value_figures(pairs)


def _table_kind_figures(pairs: int) -> list[Figure]:
    from bench.pipeline.table_kinds import table_kind_figures

    return table_kind_figures(pairs)


def _table_stream_figures(pairs: int) -> list[Figure]:
    from bench.pipeline.table_streams import table_stream_figures

    return table_stream_figures(pairs)


def _export_figures(pairs: int) -> list[Figure]:
    from bench.pipeline.exports import export_figures

    return export_figures(pairs)


def _segment_source_figures(pairs: int) -> list[Figure]:
    from bench.pipeline.segment_source import segment_source_figures

    return segment_source_figures(pairs)


RESULTS = Path(__file__).parent / "results"
PAIRS = int(os.environ.get("KOMPAKT_BENCH_PAIRS", "5"))
Group = Callable[[int], Iterable[Figure | Skipped]]
GROUPS: dict[str, Group] = {
    "startup": lambda pairs: [start_figure(pairs), *many_segments_figures(pairs)],
    "recovery": unclean_start_figures,
    "memory": memory_figures,
    "idle_connections": idle_connection_figures,
    "latency": latency_figures,
    "peers": peer_figures,
    "tansu": tansu_figures,
    "fetch": fetch_figures,
    "produce": produce_figures,
    "tls": tls_throughput_figures,
    "compressed": compressed_figures,
    "group_commit": group_commit_figures,
    "two_brokers": two_broker_figures,
    "kernel": kernel_figures,
    "cleaning": lambda pairs: [*pass_figures(pairs), *workers_figures(pairs)],
    "copy_runs": copy_figures,
    "verified": verification_figures,
    "many_keys": many_keys_figures,
    "mostly_clean": mostly_clean_figures,
    "history": history_figures,
    "strategies": strategy_figures,
    "features_in_use": features_in_use_figures,
    "expiry": expiry_figures,
    "erasure": erasure_figures,
    "fences": fence_figures,
    "events": event_figures,
    "releases": release_figures,
    "release_requests": release_request_figures,
    "latency_guard": latency_guard_figures,
    "groups": group_figures,
    "key_lookups": key_lookup_figures,
    "latest_view": latest_view_figures,
    "redis": redis_figures,
    "checkpoints": checkpoint_figures,
    "mirrors": mirror_figures,
    "mirror_lag": mirror_lag_figures,
    "idle_mirrors": idle_mirror_figures,
    "follower_append": follower_append_figures,
    "aborted": aborted_figures,
    "authorization": authorization_figures,
    "topics": topic_figures,
    "many_topics": many_topics_figures,
    "replog": placement_figures,
    "replog_snapshotters": snapshotter_figures,
    "segment_source": _segment_source_figures,
    "table_values": _table_value_figures,
    "table_kinds": _table_kind_figures,
    "table_streams": _table_stream_figures,
    "export": _export_figures,
    "distributed": _distributed_figures,
}
QUICK_GROUPS: dict[str, Group] = GROUPS | {
    "peers": quick_peer_figures,
    "release_requests": quick_release_request_figures,
}
ON_REQUEST = {"redis", "releases", "release_requests"}
"""Measured only when named, because they need more than this tree and its packages."""


def machine() -> dict[str, str | int | float | None]:
    return {
        "python": platform.python_version(),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "cores": os.cpu_count(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def write(
    group: str,
    figures: Iterable[Figure],
    skipped: Iterable[Skipped],
    machine: Mapping[str, object],
) -> None:
    document = {
        "group": group,
        "taken": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": machine,
        "note": os.environ.get("KOMPAKT_BENCH_NOTE", ""),
        "figures": [figure.as_json() for figure in figures],
        "skipped": [each.as_json() for each in skipped],
    }
    (RESULTS / f"{group}.json").write_text(json.dumps(document, indent=2) + "\n")


def show(
    console: Console, group: str, figures: Iterable[Figure], skipped: Iterable[Skipped]
) -> None:
    table = Table(title=group, title_justify="left")
    for heading in ("figure", "measured", "limit", "ratio", "the limit is", "note"):
        table.add_column(
            heading, justify="right" if heading in ("measured", "limit", "ratio") else "left"
        )
    for figure in figures:
        measured, limit = (
            f"{figure.measured:,.2f} {figure.unit}",
            f"{figure.limit:,.2f} {figure.unit}",
        )
        ratio = f"{figure.ratio:.2f}"
        if figure.pairs > 1:
            ratio += f" ({figure.ratio_from:.2f} to {figure.ratio_to:.2f})"
        table.add_row(figure.name, measured, limit, ratio, figure.limit_is, figure.note)
    console.print(table)
    for each in skipped:
        console.print(f"skipped: {each.name}: {each.reason}", markup=False)


def main(arguments: list[str]) -> int:
    """Run the named groups, or all of them. Returns the exit code: 2 for an unknown name."""
    parser = argparse.ArgumentParser(prog="python -m bench")
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=", ".join(GROUPS))
    parser.add_argument("--quick", action="store_true", help="take a first look; write no results")
    options = parser.parse_args(arguments)
    console = Console(width=160)
    unknown = [group for group in options.groups if group not in GROUPS]
    if unknown:
        console.print(f"No such group: {', '.join(unknown)}. There are: {', '.join(GROUPS)}.")
        return 2
    RESULTS.mkdir(exist_ok=True)
    # SIGTERM raises, so that every server process is stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    for group in options.groups or [each for each in GROUPS if each not in ON_REQUEST]:
        run(console, group, is_quick=options.quick)
    return 0


def run(console: Console, group: str, *, is_quick: bool) -> None:
    """Measure a group and show its figures; write them unless the run is quick."""
    before = machine()
    figures, skipped = list[Figure](), list[Skipped]()
    with console.status(f"measuring {group}") as status:
        for each in QUICK_GROUPS[group](1) if is_quick else GROUPS[group](PAIRS):
            if isinstance(each, Figure):
                figures.append(each)
            else:
                skipped.append(each)
            done = count_text(len(figures), "figure")
            status.update(f"measuring {group}: {done}, the last one: {escape(each.name)}")
    if not is_quick:
        write(group, figures, skipped, before)
    show(console, group, figures, skipped)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
