"""The rows of `python -m bench peers`; with `--quick`, the most different ones.

    requests      one record each, small and larger, one at a time on each of 1 to 1000 connections
    batches       16 KiB and 64 KiB, spread over connections and partitions
    partitions    a record to each of a thousand in turn, and of nine thousand
    codecs        64 KiB before compression, which is what their rates count
    fetches       64 KiB and 1 MiB answers from the page cache, and from the disk
    sessions      a consumer of ten and of a thousand partitions, of which one gets a record
    metadata      of one topic
    commits       of one offset, by consumers that are no members
    transactions  of one partition each, by one producer
    groups        heartbeats of a group of a thousand members
    delivery      until a waiting consumer has a record, at a given rate, without coordinated omission
    cleaning      ten million records of a million keys, as soon as the topic is compacted; alone, and
                  beside a thousand produces a second, whose latency is a row, too
    start         until the first produce is accepted; and the memory, idle and after all loads
    latency       of acks=all, beside the machine's own limit
    long polls    produces while a thousand fetches wait for records of other partitions
    TLS           64 KiB produced, 1 MiB fetched
    tansu         produces, beside this broker, which has no disk

A row takes about 30 seconds with five pairs, and about 5 in a quick run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from bench.base.figure import Figure
from bench.peers.cleaning import cleaning_figures
from bench.peers.cold_fetch import cold_fetched_figure
from bench.peers.commit_latency import commit_latency_figure
from bench.peers.comparison import (
    Comparison,
    Effort,
    compared,
    compared_over_tls,
    compared_with_tansu,
)
from bench.peers.delivery import delivery_figure
from bench.peers.fetch import fetched_figure
from bench.peers.fetch_session import fetched_in_session_figure
from bench.peers.group_heartbeats import heartbeats_figure
from bench.peers.long_polls import produced_beside_long_polls_figure
from bench.peers.many_partitions import produced_to_many_figure
from bench.peers.metadata import metadata_figure
from bench.peers.offset_commit import committed_figure
from bench.peers.produce import (
    BATCH_16,
    BATCH_64,
    KILOBYTE,
    ONE_RECORD,
    TEN_KILOBYTES,
    compressed_load,
    produced_figure,
)
from bench.peers.start import memory_figure, start_figure
from bench.peers.transactions import transactions_figure
from protocol.records.record_batch import Codec

Row = Callable[[Comparison], Figure]

SECONDS = 2.0
"""How long a row loads each server."""
CLEANING_PAIRS_MAX = 3
"""A pair takes a minute."""
QUICK = Effort(pairs=1, seconds=1.0)
WARM_UP = Effort(pairs=1, seconds=3.0)
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
    partial(produced_to_many_figure, partitions=1000),
    *(
        partial(produced_figure, load=compressed_load(codec), acks=1, connections=1)
        for codec in Codec
    ),
)
FETCHES: tuple[Row, ...] = (
    *(partial(fetched_figure, bytes_max=bytes_max) for bytes_max in (64 << 10, 1 << 20)),
    partial(cold_fetched_figure, bytes_max=1 << 20),
)
DELIVERIES: tuple[Row, ...] = tuple(
    partial(delivery_figure, records_a_second=2_000, percentile=percentile)
    for percentile in (50, 99)
)
SMALL_REQUESTS: tuple[Row, ...] = (
    *(partial(fetched_in_session_figure, partitions=partitions) for partitions in (10, 1000)),
    partial(metadata_figure, connections=16),
    partial(committed_figure, connections=16),
    partial(heartbeats_figure, members=1000),
    transactions_figure,
    *DELIVERIES,
)
BESIDE_LONG_POLLS: Row = partial(produced_beside_long_polls_figure, long_polls=1000)
OTHERS: tuple[Row, ...] = (
    *SMALL_REQUESTS,
    *(partial(commit_latency_figure, percentile=percentile) for percentile in (50, 99)),
    # The last one: Apache Kafka keeps waiting fetches of closed connections until their time is over.
    BESIDE_LONG_POLLS,
)
# With servers of their own: Apache Kafka deletes the files of a topic for minutes. It refuses to create
# 9,999 partitions by one request ("Unable to perform excessively large batch operation").
MANY_PARTITIONS: tuple[Row, ...] = (partial(produced_to_many_figure, partitions=9_000),)
QUICK_LOADS: tuple[Row, ...] = (
    partial(produced_figure, load=ONE_RECORD, acks=1, connections=16),
    partial(produced_figure, load=ONE_RECORD, acks=1, connections=1000),
    partial(produced_figure, load=BATCH_64, acks=1, connections=1),
    partial(produced_figure, load=compressed_load(Codec.ZSTD), acks=1, connections=1),
    partial(fetched_figure, bytes_max=1 << 20),
)
QUICK_ROWS: tuple[Row, ...] = (*QUICK_LOADS, *OTHERS)
UNSYNCED_ROWS: tuple[Row, ...] = (
    *(
        partial(produced_figure, load=ONE_RECORD, acks=-1, connections=connections)
        for connections in (1, 16)
    ),
    partial(committed_figure, connections=16),
    transactions_figure,
    *DELIVERIES,
    partial(fetched_in_session_figure, partitions=10),
)
TLS_ROWS: tuple[Row, ...] = (
    partial(produced_figure, load=BATCH_64, acks=1, connections=1),
    partial(fetched_figure, bytes_max=1 << 20),
)
TANSU_ROWS: tuple[Row, ...] = (
    *(
        partial(produced_figure, load=ONE_RECORD, acks=acks, connections=connections)
        for connections in (1, 16, 64)
        for acks in (1, -1)
    ),
    *(
        partial(produced_figure, load=BATCH_16, acks=acks, connections=16, partitions=16)
        for acks in (1, -1)
    ),
    *(partial(produced_figure, load=BATCH_64, acks=acks, connections=1) for acks in (1, -1)),
)
"""Produces only: tansu's answers to the other rows' versions of Fetch and Metadata cannot be read."""


def peer_figures(pairs: int) -> list[Figure]:
    """Measure every row, with Kompakt and Apache Kafka in turn.

    Raises:
        JarsUnavailable: Java or Maven is missing.
    """
    effort = Effort(pairs, SECONDS)
    figures = [start_figure(pairs)]
    with compared(effort) as servers:
        figures.append(memory_figure(servers, when="idle"))
        figures += measured(servers, (*PRODUCES, *FETCHES, *OTHERS))
        figures.append(memory_figure(servers, when="after these loads"))
    with compared(effort, UNSYNCED, label=", ours not synced") as servers:
        figures += measured(servers, UNSYNCED_ROWS)
    with compared_over_tls(effort) as servers:
        figures += measured(servers, TLS_ROWS)
    with compared(effort) as servers:
        figures += measured(servers, MANY_PARTITIONS)
    return figures + cleaning_figures(min(pairs, CLEANING_PAIRS_MAX))


def tansu_figures(pairs: int) -> list[Figure]:
    """Measure the rows of `TANSU_ROWS`, with Kompakt and tansu in turn.

    Raises:
        TansuUnavailable: it is not installed.
    """
    with compared_with_tansu(Effort(pairs, SECONDS)) as servers:
        figures = [memory_figure(servers, when="idle")]
        figures += measured(servers, TANSU_ROWS)
        return [*figures, memory_figure(servers, when="after these loads")]


def quick_peer_figures(pairs: int) -> list[Figure]:
    """Measure the most different rows, once and for a second each: about a minute.

    Apache Kafka has compiled less of itself than in the full run, so its values are lower.

    Raises:
        JarsUnavailable: Java or Maven is missing.
    """
    del pairs
    with compared(QUICK) as servers:
        # Not counted: it shows mostly how Java starts.
        measured(replace(servers, effort=WARM_UP), QUICK_ROWS[:1])
        return measured(servers, QUICK_ROWS)


def measured(servers: Comparison, rows: Iterable[Row]) -> list[Figure]:
    """Returns the figures of these rows."""
    return [row(servers) for row in rows]
