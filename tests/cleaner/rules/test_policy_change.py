"""Which changes of a topic's settings can remove records, and what else they do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cleaner.rules.policy_change import policy_change
from storage.formats.compaction_config import MIN_SEGMENT_DEAD_RATIO, UNKEYED, UNKEYED_TOPIC
from storage.formats.compaction_history import HISTORY_PROPERTIES
from storage.formats.compaction_strategy import STRATEGY_PROPERTIES
from storage.formats.compaction_ttl import TTL_PROPERTIES
from storage.formats.log_config import LogConfig

DELETE = LogConfig(cleanup_policy=("delete",))
COMPACT = LogConfig(cleanup_policy=("compact",))
BOTH = LogConfig(cleanup_policy=("compact", "delete"))


@pytest.mark.parametrize(
    ("before", "after", "deletes", "compacts"),
    [
        pytest.param(DELETE, COMPACT, False, True, id="compaction begins"),
        pytest.param(DELETE, BOTH, False, True, id="compaction begins beside retention"),
        pytest.param(COMPACT, BOTH, True, False, id="retention begins beside compaction"),
        pytest.param(COMPACT, DELETE, True, False, id="retention in place of compaction"),
        pytest.param(BOTH, COMPACT, False, False, id="retention ends"),
        pytest.param(DELETE, LogConfig(cleanup_policy=()), False, False, id="neither"),
    ],
)
def test_a_policy_removes_what_the_one_before_kept(
    before: LogConfig, after: LogConfig, deletes: bool, compacts: bool
) -> None:
    change = policy_change(before, after)

    assert (change.deletes, change.compacts) == (deletes, compacts)


@pytest.mark.parametrize(
    ("config", "changed", "deletes", "compacts"),
    [
        (DELETE, {"retention_ms": 1}, True, False),
        (DELETE, {"retention_bytes": 1}, True, False),
        (COMPACT, {"retention_ms": 1}, False, False),
        (COMPACT, {"compaction_unkeyed_records": "keep"}, False, True),
        (COMPACT, {"compaction_versions": 2}, False, True),
        (COMPACT, {"compaction_strategy": "timestamp"}, False, True),
        (COMPACT, {"min_compaction_lag_ms": 5}, False, True),
        (DELETE, {"compaction_versions": 2}, False, False),
        (COMPACT, {"min_cleanable_dirty_ratio": 0.1}, False, False),
        (COMPACT, {"segment_bytes": 1 << 20}, False, False),
        (replace(COMPACT, mirror_link="l"), {"mirror_compaction": "on"}, False, True),
    ],
)
def test_settings_count_where_their_policy_is_in_force(
    config: LogConfig, changed: dict[str, Any], deletes: bool, compacts: bool
) -> None:
    change = policy_change(config, replace(config, **changed))

    assert (change.deletes, change.compacts) == (deletes, compacts)


def test_what_else_changes_is_said() -> None:
    begins, ends = policy_change(DELETE, COMPACT), policy_change(BOTH, LogConfig(cleanup_policy=()))
    longer = policy_change(COMPACT, replace(COMPACT, delete_retention_ms=60_000))

    assert [note.split()[0] for note in begins.notes] == ["batches", "nothing"]
    assert [note.split()[0] for note in ends.notes] == ["no", "nothing"]
    assert "will stay for" in longer.notes[0]
    assert policy_change(COMPACT, COMPACT).notes == ()


def test_settings_that_do_harm_are_named() -> None:
    change = policy_change(COMPACT, replace(COMPACT, delete_retention_ms=0))

    assert [harm.text.split()[1] for harm in change.harms] == ["delete.retention.ms=0"]


VALUES = {
    "compaction.strategy": "timestamp",
    "compaction.strategy.header": "rank",
    "compaction.versions": "2",
    "compaction.thinning": "all for 1h",
    "compaction.unkeyed.records": "keep",
    "compaction.unkeyed.topic": "others",
    "compaction.ttl.ms": "5000",
    "compaction.ttl.header": "ttl",
    "min.segment.dead.ratio": "0.5",
}
BEFORE = {
    "compaction.strategy.header": {"compaction.strategy": "header"},
    "compaction.unkeyed.topic": {"compaction.unkeyed.records": "move"},
}
"""What another property needs so that a property has an effect."""
OTHER = {"compaction.strategy.header": "old", "compaction.unkeyed.topic": "aside"}


@pytest.mark.parametrize(
    "name",
    [
        *STRATEGY_PROPERTIES,
        *HISTORY_PROPERTIES,
        UNKEYED,
        UNKEYED_TOPIC,
        *TTL_PROPERTIES,
        MIN_SEGMENT_DEAD_RATIO,
    ],
)
def test_every_property_that_decides_which_records_stay_counts(name: str) -> None:
    common = {"cleanup.policy": "compact", **OTHER, **BEFORE.get(name, {})}
    if name != "compaction.strategy.header":
        del common["compaction.strategy.header"]
    before = LogConfig.from_overrides(common, LogConfig())
    after = LogConfig.from_overrides({**common, name: VALUES[name]}, LogConfig())

    assert policy_change(before, after).compacts


@pytest.mark.parametrize(("before", "after"), [("drop", "move"), ("keep", "move")])
def test_moving_records_without_a_key_counts(before: str, after: str) -> None:
    aside = replace(COMPACT, compaction_unkeyed_topic="aside")
    first = replace(aside, compaction_unkeyed_records=before)
    then = replace(aside, compaction_unkeyed_records=after)

    assert policy_change(first, then).compacts
    assert policy_change(then, first).compacts


def test_values_that_will_expire_are_said_not_to_be_counted() -> None:
    expires = replace(COMPACT, compaction_ttl_ms=5_000)
    mirror = replace(COMPACT, mirror_link="l")

    (note,) = policy_change(COMPACT, expires).notes
    assert "not counted here" in note
    (note,) = policy_change(expires, COMPACT).notes
    assert note.startswith("no value expires")
    assert policy_change(mirror, replace(mirror, compaction_ttl_ms=5_000)).notes == ()
