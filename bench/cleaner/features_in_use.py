"""What a pass costs with one feature of the cleaner in use, beside the same pass without.

comparing keys     byte by byte (`compaction.compare.keys`)
kept for an undo   `compaction.undo.ms`
sparing segments   `min.segment.dead.ratio`
"""

from __future__ import annotations

from dataclasses import replace

from bench.base.figure import Figure
from bench.cleaner.cleaned_log import CONFIG
from bench.cleaner.keyed_log import figures_beside_the_last_offset

CONFIGS = {
    "comparing keys": replace(CONFIG, compaction_compare_keys=True),
    "kept for an undo": replace(
        CONFIG, compaction_undo_ms=3_600_000, compaction_undo_bytes=1 << 40
    ),
    "sparing segments": replace(CONFIG, min_segment_dead_ratio=0.2),
}


def features_in_use_figures(pairs: int) -> list[Figure]:
    """Measure a first pass over four million records, and the pass after 200,000 more."""
    return figures_beside_the_last_offset(CONFIGS, pairs)
