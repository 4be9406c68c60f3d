"""The cost of the three placements in bytes a client byte, beside the paper's reasoning.

Bytes depend on nothing but the code, so one run is enough and a busy machine changes nothing. A client
byte is a byte of the frames that hold the client's commands; s are the bytes of snapshots that a copy
writes for it, f the followers, c the crashes of leaders for a complete snapshot.

    network    f (1 + s) in the log, since chunks travel; f for files, which each copy makes
    disk       (f + 1)(1 + s): each copy writes the log and its snapshots
    s          u for a fixed size; growing, 0 if the size is known and u < 1, else up to 1 + u
    crashes    s (1 + c/2): a failed snapshot is half written; independent copies lose only their own

Source: Ongaro, Log Compaction in Raft, sections 4 and 5.4.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path

from bench.base.figure import Figure
from bench.replog.copies import COPIES, Cluster, State
from replog.compactor import Placement

US = (0.1, 0.5, 1.0)
CRASHES = {State.FIXED: (0.0, 0.3), State.GROWING: (0.0,), State.GROWING_UNSIZED: (0.0,)}
KEYS = 250
SNAPSHOTS = 8
SNAPSHOT_BYTES = 250 << 10
"""About the size of a state with a fixed size."""
GROWING_BYTES = 8 << 20


def placement_figures(pairs: int) -> list[Figure]:
    """Run every combination once, whatever `pairs` is."""
    found: list[Figure] = []
    checks = violations = 0
    for placement, state, u in product(Placement, State, US):
        for crashes in CRASHES[state]:
            with tempfile.TemporaryDirectory() as folder:
                cluster = Cluster(Path(folder) / "copies", placement, state, u=u, crashes=crashes)
                cluster.run(_client_bytes(state, u), KEYS)
                found += _figures(cluster, u)
                checks, violations = checks + cluster.checks, violations + cluster.violations
                cluster.close()
    found.append(
        _figure(
            "violations of the disk bound",
            violations,
            checks,
            unit="",
            limit_is="comparisons of a copy's files with its bound",
        )
    )
    return found


def _client_bytes(state: State, u: float) -> int:
    return int(SNAPSHOTS * SNAPSHOT_BYTES / u) if state is State.FIXED else GROWING_BYTES


def _figures(cluster: Cluster, u: float) -> Iterator[Figure]:
    name = f"{cluster.placement.value}, {cluster.state.value}, u {u:g}"
    note = f"{cluster.snapshots} snapshots"
    if cluster.crashes:
        name, note = f"{name}, leader crashes", f"{note}, {cluster.crashed} crashes"
    s = expected_snapshot_bytes(cluster, u)
    if cluster.state is not State.FIXED:
        text = f"{name}: snapshots, at most"
        yield _figure(text, cluster.snapshot_share_max, s, limit_is="s", note=note)
        return
    in_log, followers = cluster.placement is Placement.IN_LOG, COPIES - 1
    yield _figure(
        f"{name}: network",
        sum(cluster.sent.values()) / cluster.client_bytes,
        followers * (1 + s) if in_log else followers,
        limit_is="f (1 + s)" if in_log else "f",
        note=note,
    )
    yield _figure(
        f"{name}: disk",
        cluster.disk_bytes / cluster.client_bytes,
        COPIES * (1 + s),
        limit_is="(f + 1)(1 + s)",
        note=note,
    )
    yield _figure(f"{name}: snapshots", cluster.snapshot_share, s, limit_is="s", note=note)
    yield _figure(
        f"{name}: most on a copy's disk",
        max(copy.peak_bytes for copy in cluster.copies) / cluster.leader.replica.snapshot_bytes,
        2 + 1 / u,
        unit="snapshots",
        limit_is="the paper's (1 + 1/u) p + n, where p = n",
        note=note,
    )


def expected_snapshot_bytes(cluster: Cluster, u: float) -> float:
    """Returns s by the paper's reasoning, and half a snapshot more for each crash that there was."""
    if cluster.state is State.GROWING_UNSIZED:
        return 1 + u
    if cluster.state is State.GROWING:
        return u if u >= 1 else 0.0
    wasted = cluster.crashed / 2 / max(cluster.snapshots, 1)
    # Only the copy that crashes loses its own.
    return u * (1 + (wasted / COPIES if cluster.placement is Placement.INDEPENDENT else wasted))


def _figure(
    name: str, measured: float, limit: float, *, limit_is: str, note: str = "", unit: str = "bytes"
) -> Figure:
    ratio = measured / limit if limit else float(measured > 0)
    return Figure(
        name=name,
        unit=unit,
        measured=measured,
        limit=limit,
        limit_is=limit_is,
        ratio=ratio,
        ratio_from=ratio,
        ratio_to=ratio,
        pairs=1,
        note=note,
    )
