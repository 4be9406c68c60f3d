"""What a change of a topic's settings can remove, before it is made. Pure.

    deletes     retention goes by another rule: by age, by size, or at all
    compacts    passes keep other records, or may judge younger ones
    neither     the change decides when passes run, or how data is stored; it removes nothing

What then goes is counted by `cleaner/inspect/policy_preview.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cleaner.rules.harmful_settings import Harm, harmful_settings
from cleaner.rules.text import duration_text
from storage.formats.compaction_ttl import CompactionTtl
from storage.formats.log_config import LogConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyChange:
    """What a change of a topic's settings does to its records."""

    deletes: bool
    """Whether retention deletes segments by another rule than before."""
    compacts: bool
    """Whether a pass drops records that it kept before, or may drop them."""
    notes: tuple[str, ...]
    """Other consequences, as sentences for people."""
    harms: tuple[Harm, ...]
    """What the new settings do that no one can want."""


def policy_change(before: LogConfig, after: LogConfig) -> PolicyChange:
    """Returns what changes for the records of a topic if its settings change so."""
    return PolicyChange(
        deletes=after.is_deleted and _retention(after) != _retention(before),
        compacts=after.is_compacted and _compaction(after) != _compaction(before),
        notes=tuple(note for rule in _NOTES if (note := rule(before, after)) is not None),
        harms=harmful_settings(after),
    )


def _retention(config: LogConfig) -> tuple[object, ...]:
    return config.is_deleted, config.retention_ms, config.retention_bytes


def _compaction(config: LogConfig) -> tuple[object, ...]:
    return (
        config.is_compacted,
        config.compaction_unkeyed_records,
        config.compaction_unkeyed_topic if config.moves_unkeyed_records else None,
        config.strategy,
        config.history,
        config.min_compaction_lag_ms,
        config.min_compaction_lag_bytes,
        config.compaction_hold_groups,
        config.min_segment_dead_ratio if config.spares_segments else 0,
        _ttl(config),
    )


def _ttl(config: LogConfig) -> CompactionTtl | None:
    return config.ttl if config.expires_values else None


def _compaction_begins(before: LogConfig, after: LogConfig) -> str | None:
    if before.is_compacted or not after.is_compacted:
        return None
    return "batches that have a record without a key will be refused"


def _compaction_ends(before: LogConfig, after: LogConfig) -> str | None:
    if not before.is_compacted or after.is_compacted:
        return None
    return "no pass runs from then on; what passes have dropped does not come back"


def _deletion_ends(before: LogConfig, after: LogConfig) -> str | None:
    if not before.is_deleted or after.is_deleted:
        return None
    return "nothing is deleted by age or size from then on"


def _tombstones_stay(before: LogConfig, after: LogConfig) -> str | None:
    if not after.is_compacted or after.delete_retention_ms == before.delete_retention_ms:
        return None
    return (
        "tombstones that a pass meets for the first time will stay for"
        f" {duration_text(after.delete_retention_ms / 1000)}; those that have a date keep it"
    )


def _values_expire(before: LogConfig, after: LogConfig) -> str | None:
    if not after.expires_values or _ttl(after) == _ttl(before):
        return None
    return (
        "values whose time is over will get tombstones, and passes then drop them: those values are"
        " not counted here"
    )


def _expiry_ends(before: LogConfig, after: LogConfig) -> str | None:
    if not before.expires_values or after.expires_values:
        return None
    return "no value expires from then on; tombstones of expired values stay in force"


_NOTES: tuple[Callable[[LogConfig, LogConfig], str | None], ...] = (
    _compaction_begins,
    _compaction_ends,
    _deletion_ends,
    _tombstones_stay,
    _values_expire,
    _expiry_ends,
)
