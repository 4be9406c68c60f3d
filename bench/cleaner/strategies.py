"""What a pass costs where records have versions (`compaction.strategy`), beside one by offset."""

from __future__ import annotations

from dataclasses import replace

from bench.base.figure import Figure
from bench.cleaner.cleaned_log import CONFIG
from bench.cleaner.keyed_log import HEADER, figures_beside_the_last_offset

CONFIGS = {
    "by timestamp": replace(CONFIG, compaction_strategy="timestamp"),
    "by header": replace(CONFIG, compaction_strategy="header", compaction_strategy_header=HEADER),
}


def strategy_figures(pairs: int) -> list[Figure]:
    """Measure first passes over four million records, and the passes after 200,000 more."""
    return figures_beside_the_last_offset(CONFIGS, pairs)
