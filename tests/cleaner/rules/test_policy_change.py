"""Which changes of a topic's settings can remove records, and what else they do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cleaner.rules.policy_change import policy_change
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
