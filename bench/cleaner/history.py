"""What a pass costs where older values stay (`compaction.versions`, `compaction.thinning`).

The same passes as for strategies, beside those that keep the last value only. Each key has ten
records, with times spread at random over the last eleven days. What stays has to be written, too: the
first pass writes three times as much with three versions, and nearly everything with thinning.
"""

from __future__ import annotations

from dataclasses import replace

from bench.base.figure import Figure
from bench.cleaner.cleaned_log import CONFIG
from bench.cleaner.keyed_log import figures_beside_the_last_offset

CONFIGS = {
    "3 versions": replace(CONFIG, compaction_versions=3),
    "thinned": replace(CONFIG, compaction_thinning="all for 1h, one per 1d for 1y"),
}


def history_figures(pairs: int) -> list[Figure]:
    """Measure first passes over four million records, and the passes after 200,000 more."""
    return figures_beside_the_last_offset(CONFIGS, pairs)
