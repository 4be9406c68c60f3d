"""The rows of `python -m bench peers`.

requests      one record each, one at a time on each connection
batches       16 KiB and 64 KiB, spread over connections and partitions
fetches       64 KiB and 1 MiB answers from the page cache
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from bench.base.figure import Figure
from bench.peers.commit_latency import commit_latency_figure
from bench.peers.comparison import Comparison, Effort, compared, compared_over_tls
from bench.peers.fetch import fetched_figure
from bench.peers.long_polls import produced_beside_long_polls_figure
from bench.peers.metadata import metadata_figure
from bench.peers.offset_commit import committed_figure
from bench.peers.produce import (
    BATCH_16,
    BATCH_64,
    COMPRESSED,
    KILOBYTE,
    ONE_RECORD,
    TEN_KILOBYTES,
    produced_figure,
)

Row = Callable[[Comparison], Figure]

SECONDS = 2.0
"""How long a row loads each server."""
UNSYNCED = "flush.on.acks.all=false"

PRODUCES: tuple[Row, ...] = (
    *(
        partial(produced_figure, load=ONE_RECORD, acks=acks, connections=connections)
        for connections in (1, 16, 64)
        for acks in (1, -1)
    ),
    partial(produced_figure, load=ONE_RECORD, acks=1, connections=1000),
    *(
        partial(produced_figure, load=load, acks=1, connections=16)
        for load in (KILOBYTE, TEN_KILOBYTES)
    ),
    *(
        partial(produced_figure, load=BATCH_16, acks=acks, connections=16, partitions=16)
        for acks in (1, -1)
    ),
    *(partial(produced_figure, load=BATCH_64, acks=acks, connections=1) for acks in (1, -1)),
    *(partial(produced_figure, load=load, acks=1, connections=1) for load in COMPRESSED),
)
FETCHES: tuple[Row, ...] = tuple(
    partial(fetched_figure, bytes_max=bytes_max) for bytes_max in (64 << 10, 1 << 20)
)
OTHERS: tuple[Row, ...] = (
    partial(metadata_figure, connections=16),
    partial(committed_figure, connections=16),
    *(partial(commit_latency_figure, percentile=percentile) for percentile in (50, 99)),
    # The last one: Apache Kafka keeps waiting fetches of closed connections until their time is over.
    partial(produced_beside_long_polls_figure, long_polls=1000),
)
UNSYNCED_ROWS: tuple[Row, ...] = (
    *(
        partial(produced_figure, load=ONE_RECORD, acks=-1, connections=connections)
        for connections in (1, 16)
    ),
    partial(committed_figure, connections=16),
)

TLS_ROWS: tuple[Row, ...] = (
    partial(produced_figure, load=BATCH_64, acks=1, connections=1),
    partial(fetched_figure, bytes_max=1 << 20),
)


def peer_figures(pairs: int) -> list[Figure]:
    """Measure every row, with Kompakt and Apache Kafka in turn.

    Raises:
        JarsUnavailable: Java or Maven is missing.
    """
    effort = Effort(pairs, SECONDS)
    with compared(effort) as servers:
        figures = measured(servers, (*PRODUCES, *FETCHES, *OTHERS))
    with compared(effort, UNSYNCED, label=", ours not synced") as servers:
        figures += measured(servers, UNSYNCED_ROWS)
    with compared_over_tls(effort) as servers:
        figures += measured(servers, TLS_ROWS)
    return figures


def measured(servers: Comparison, rows: Iterable[Row]) -> list[Figure]:
    """Returns the figures of these rows."""
    return [row(servers) for row in rows]
