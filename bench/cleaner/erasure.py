"""What an erasure reads beside its pass: the search for its keys, and the proof that nothing is left.

search    the key sidecars; once for each request
proof     the whole log, each key hashed again; twice for all erasures that wait for it
"""

from __future__ import annotations

import time
from pathlib import Path

from bench.base.figure import Figure, interleaved
from bench.cleaner.cleaned_log import copy_of, free_meter, index_at
from bench.cleaner.keyed_log import BATCHES, RECORDS_EACH_BATCH, keyed_log
from bench.cleaner.sidecars import seconds_of_indexing
from cleaner.inspect.key_traces import trace_keys
from cleaner.kernel.kernel import siphash128
from cleaner.pacing.settings import CleanerSettings
from storage.log.log import PartitionLog

COUNTS = 1, 100
"""Keys that are erased at once; 100 is the most of a request."""


def erasure_figures(pairs: int) -> list[Figure]:
    """Measure both readings of four million records."""
    with keyed_log() as source:
        proofs = [_proof_figure(source, count, pairs) for count in COUNTS]
        index_at(source)
        return [*proofs, *(_search_figure(source, count, pairs) for count in COUNTS)]


def _proof_figure(source: Path, count: int, pairs: int) -> Figure:
    return interleaved(
        f"proof for {_keys(count)}",
        "s",
        lambda: _seconds(source, count, trusts_sidecars=False),
        lambda: seconds_of_indexing(source),
        limit_is="making the key sidecars",
        pairs=pairs,
    )


def _search_figure(source: Path, count: int, pairs: int) -> Figure:
    return interleaved(
        f"search for {_keys(count)}, by key sidecars",
        "s",
        lambda: _seconds(source, count, trusts_sidecars=True),
        lambda: _seconds(source, count, trusts_sidecars=False),
        limit_is="a proof",
        pairs=pairs,
    )


def _keys(count: int) -> str:
    return "one key" if count == 1 else f"{count} keys"


def _seconds(source: Path, count: int, *, trusts_sidecars: bool) -> float:
    with copy_of(source) as log:
        hashes = _hashes(log, count)
        started = time.perf_counter()
        traces = trace_keys(
            log.cleaning_view(as_if_rolled=True),
            hashes,
            CleanerSettings(),
            meter=free_meter(),
            trusts_sidecars=trusts_sidecars,
        )
        assert traces.records == BATCHES * RECORDS_EACH_BATCH, "each record was looked at"
        return time.perf_counter() - started


def _hashes(log: PartitionLog, count: int) -> list[bytes]:
    return [siphash128(log.identity.hash_key, b"key-%012d" % number) for number in range(count)]
