"""Which logs only the broker's own cleaner can clean, and why. Pure.

A plan that travels (`travelling_plan.py`) has neither the settings nor the state that these need.
"""

from __future__ import annotations

from collections.abc import Sequence

from cleaner.rules.fence import Fence
from storage.formats.compaction_config import COMPARE_KEYS, MIN_SEGMENT_DEAD_RATIO, UNKEYED
from storage.formats.compaction_history import THINNING, VERSIONS
from storage.formats.compaction_strategy import STRATEGY
from storage.formats.log_config import LogConfig
from storage.formats.topic_partition import TopicPartition


def why_not_remote(
    partition: TopicPartition, config: LogConfig, *, has_history: bool, fences: Sequence[Fence]
) -> str | None:
    """Returns why no other process can execute a pass over a log; None if one can.

    Args:
        has_history: whether keys may have older values below the clean offset.
        fences: the damaged segments that passes clean around.
    """
    older_values_stay = has_history or config.history.keeps_more or config.spares_segments
    reasons = (
        (
            config.strategy.has_versions,
            f"{partition} has {STRATEGY}={config.compaction_strategy}:"
            " only the broker's own cleaner compares versions",
        ),
        (
            older_values_stay,
            f"older values of {partition} stay ({VERSIONS}, {THINNING}, {MIN_SEGMENT_DEAD_RATIO}),"
            " or did so: only the broker's own cleaner judges them",
        ),
        (
            config.moves_unkeyed_records,
            f"{partition} has {UNKEYED}=move: only the broker's own cleaner moves records",
        ),
        (
            config.compaction_compare_keys,
            f"{partition} has {COMPARE_KEYS}=true: only the broker's own cleaner compares keys",
        ),
        *((True, f"only the broker's own cleaner cleans around {fence}") for fence in fences[:1]),
    )
    return next((reason for applies, reason in reasons if applies), None)
