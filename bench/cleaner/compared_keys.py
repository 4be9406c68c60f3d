"""What a pass costs that compares keys byte by byte (`compaction.compare.keys`), beside the same pass
without."""

from __future__ import annotations

from dataclasses import replace

from bench.base.figure import Figure
from bench.cleaner.cleaned_log import CONFIG
from bench.cleaner.strategies import figures_beside_the_last_offset

CONFIGS = {"comparing keys": replace(CONFIG, compaction_compare_keys=True)}


def compared_keys_figures(pairs: int) -> list[Figure]:
    """Measure a first pass over four million records, and the pass after 200,000 more."""
    return figures_beside_the_last_offset(CONFIGS, pairs)
