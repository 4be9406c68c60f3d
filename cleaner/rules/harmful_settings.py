"""Settings of a compacted topic that are allowed, each and together, but do harm. Pure.

The broker logs a warning when a topic gets such settings; `kompakt topics create`, `configs set` and
`doctor` say so to people.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from cleaner.rules.text import duration_text
from storage.formats.compaction_history import THINNING
from storage.formats.compaction_strategy import STRATEGY, Ranking
from storage.formats.compaction_ttl import TTL, TTL_HEADER
from storage.formats.config_property import LONG_MAX
from storage.formats.log_config import LogConfig

SHORT_LAG_MS = 60_000
"""With a shorter max.compaction.lag.ms, segments are tiny."""

SHORT_TTL_MS = 60_000
"""A log is not swept more often (`cleaner/rules/due_ranges.py`)."""

NAMES_MAX = 5
"""So many topics with the same harm are named."""


@dataclass(frozen=True, slots=True)
class Harm:
    """What some settings do to a topic."""

    text: str
    """Names the settings with their values, and says what they do."""
    remedy: str

    def __str__(self) -> str:
        return f"{self.text}: {self.remedy}"


def harmful_settings(config: LogConfig) -> tuple[Harm, ...]:
    """Returns what a compacted topic's settings do that no one can want; nothing for other topics."""
    if not config.policy_compacts:
        return ()
    return tuple(harm for rule in _RULES if (harm := rule(config)) is not None)


def topics_by_harm(harms: Mapping[str, Iterable[Harm]]) -> dict[Harm, list[str]]:
    """Returns the topics of each harm, from the harms of each topic."""
    found = defaultdict[Harm, list[str]](list)
    for topic, its in harms.items():
        for harm in its:
            found[harm].append(topic)
    return dict(found)


def names_text(topics: Sequence[str]) -> str:
    """Returns some of the names, and how many there are: `a, b and 7 more`."""
    shown = ", ".join(topics[:NAMES_MAX])
    more = len(topics) - NAMES_MAX
    return f"{shown} and {more} more" if more > 0 else shown


def _no_time_for_deletions(config: LogConfig) -> Harm | None:
    if config.delete_retention_ms > 0:
        return None
    return Harm(
        "with delete.retention.ms=0 a deletion is gone after two passes, so consumers can miss it",
        "set delete.retention.ms to the longest time that a consumer needs to read the topic",
    )


def _deleted_before_it_is_compacted(config: LogConfig) -> Harm | None:
    retention_ms, lag_ms = config.retention_ms, config.min_compaction_lag_ms
    if not config.is_deleted or not 0 <= retention_ms <= lag_ms or lag_ms == 0:
        return None
    return Harm(
        f"with retention.ms={retention_ms}, last values are deleted before a pass may compact them:"
        f" min.compaction.lag.ms={lag_ms}",
        "set min.compaction.lag.ms below retention.ms",
    )


def _never_dirty_enough(config: LogConfig) -> Harm | None:
    if config.min_cleanable_dirty_ratio < 1 or config.max_compaction_lag_ms < LONG_MAX:
        return None
    return Harm(
        "with min.cleanable.dirty.ratio=1 and without max.compaction.lag.ms the topic is compacted only"
        " on request",
        "set min.cleanable.dirty.ratio below 1, or max.compaction.lag.ms",
    )


def _always_dirty_enough(config: LogConfig) -> Harm | None:
    if config.min_cleanable_dirty_ratio > 0:
        return None
    return Harm(
        "with min.cleanable.dirty.ratio=0 each rolled segment causes a pass, however large the log is",
        "set a small ratio such as 0.05, or max.compaction.lag.ms",
    )


def _idle_topic_never_compacted(config: LogConfig) -> Harm | None:
    is_left = config.compaction_idle_roll_ms < 0 and config.max_compaction_lag_ms == LONG_MAX
    if not is_left:
        return None
    return Harm(
        "with compaction.idle.roll.ms=-1 and without max.compaction.lag.ms a topic with few writes waits"
        f" for segment.ms={config.segment_ms} ({duration_text(config.segment_ms / 1000)}) until it is"
        " compacted",
        "set max.compaction.lag.ms, or leave compaction.idle.roll.ms at its default",
    )


def _tiny_segments(config: LogConfig) -> Harm | None:
    lag_ms = config.max_compaction_lag_ms
    if lag_ms >= SHORT_LAG_MS:
        return None
    return Harm(
        f"max.compaction.lag.ms={lag_ms}: a topic with steady writes rolls a segment, and needs a pass,"
        f" every {duration_text(lag_ms / 1000)}",
        "set max.compaction.lag.ms to a minute or more",
    )


def _thinned_by_foreign_clocks(config: LogConfig) -> Harm | None:
    if not config.history.steps or config.message_timestamp_type != "CreateTime":
        return None
    return Harm(
        "values are thinned by their timestamps, which producers choose with"
        f" message.timestamp.type=CreateTime ({THINNING}): a wrong clock makes values go too early",
        "set message.timestamp.type=LogAppendTime",
    )


def _expired_by_foreign_clocks(config: LogConfig) -> Harm | None:
    if not config.expires_values or config.message_timestamp_type != "CreateTime":
        return None
    return Harm(
        "values expire by their timestamps, which producers choose with"
        f" message.timestamp.type=CreateTime ({TTL}, {TTL_HEADER}): a wrong clock makes values go too"
        " early or too late",
        "set message.timestamp.type=LogAppendTime",
    )


def _expired_before_it_is_read(config: LogConfig) -> Harm | None:
    ttl_ms = config.compaction_ttl_ms
    if not config.expires_values or not 0 <= ttl_ms < SHORT_TTL_MS:
        return None
    return Harm(
        f"{TTL}={ttl_ms}: values expire before most consumers have read them, and a topic is swept once"
        " a minute at most",
        f"set {TTL} to a minute or more",
    )


def _ranked_by_arrival(config: LogConfig) -> Harm | None:
    is_ranked = config.strategy.ranking is Ranking.TIMESTAMP
    if not is_ranked or config.message_timestamp_type != "LogAppendTime":
        return None
    return Harm(
        f"{STRATEGY}=timestamp with message.timestamp.type=LogAppendTime ranks records by their arrival,"
        " as offset does at less cost",
        f"set message.timestamp.type=CreateTime, or {STRATEGY}=offset",
    )


_RULES: tuple[Callable[[LogConfig], Harm | None], ...] = (
    _no_time_for_deletions,
    _deleted_before_it_is_compacted,
    _never_dirty_enough,
    _always_dirty_enough,
    _idle_topic_never_compacted,
    _tiny_segments,
    _thinned_by_foreign_clocks,
    _expired_by_foreign_clocks,
    _expired_before_it_is_read,
    _ranked_by_arrival,
)
