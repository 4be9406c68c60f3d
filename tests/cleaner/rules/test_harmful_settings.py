"""Settings that are allowed and do harm are named, with what to do."""

from __future__ import annotations

import pytest

from cleaner.rules.harmful_settings import harmful_settings, names_text, topics_by_harm
from storage.formats.log_config import LogConfig

COMPACT = {"cleanup.policy": "compact"}


def harms(**overrides: str) -> list[str]:
    named = COMPACT | {name.replace("_", "."): text for name, text in overrides.items()}
    return [str(each) for each in harmful_settings(LogConfig.from_overrides(named, LogConfig()))]


def test_a_topic_with_the_defaults_is_harmless() -> None:
    assert harms() == []
    assert harms(cleanup_policy="compact,delete", min_compaction_lag_ms="1000") == []


def test_of_a_topic_that_is_not_compacted_nothing_is_said() -> None:
    assert harms(cleanup_policy="delete", delete_retention_ms="0") == []


@pytest.mark.parametrize(
    ("overrides", "text", "harmless"),
    [
        (
            {"compaction_ttl_ms": "3600000"},
            "values expire by their timestamps, which producers choose",
            {"compaction_ttl_ms": "3600000", "message_timestamp_type": "LogAppendTime"},
        ),
        (
            {"compaction_ttl_ms": "59999", "message_timestamp_type": "LogAppendTime"},
            "compaction.ttl.ms=59999: values expire before most consumers have read them",
            {"compaction_ttl_ms": "60000", "message_timestamp_type": "LogAppendTime"},
        ),
        (
            {"delete_retention_ms": "0"},
            "a deletion is gone after two passes, so consumers can miss it: set delete.retention.ms",
            {"delete_retention_ms": "1"},
        ),
        (
            {
                "cleanup_policy": "compact,delete",
                "retention_ms": "1000",
                "min_compaction_lag_ms": "1000",
            },
            "with retention.ms=1000, last values are deleted before a pass may compact them",
            {
                "cleanup_policy": "compact,delete",
                "retention_ms": "1001",
                "min_compaction_lag_ms": "1000",
            },
        ),
        (
            {"min_cleanable_dirty_ratio": "1.0"},
            "is compacted only on request",
            {"min_cleanable_dirty_ratio": "1.0", "max_compaction_lag_ms": "600000"},
        ),
        (
            {"min_cleanable_dirty_ratio": "0"},
            "each rolled segment causes a pass",
            {"min_cleanable_dirty_ratio": "0.01"},
        ),
        (
            {"compaction_idle_roll_ms": "-1"},
            "waits for segment.ms=604800000 (7.0 d) until it is compacted",
            {"compaction_idle_roll_ms": "-1", "max_compaction_lag_ms": "600000"},
        ),
        (
            {"max_compaction_lag_ms": "5000"},
            "rolls a segment, and needs a pass, every 5.0 s: set max.compaction.lag.ms",
            {"max_compaction_lag_ms": "60000"},
        ),
        (
            {"compaction_thinning": "all for 1h"},
            "a wrong clock makes values go too early: set message.timestamp.type=LogAppendTime",
            {"compaction_thinning": "all for 1h", "message_timestamp_type": "LogAppendTime"},
        ),
        (
            {"compaction_strategy": "timestamp", "message_timestamp_type": "LogAppendTime"},
            "ranks records by their arrival",
            {"compaction_strategy": "timestamp"},
        ),
    ],
)
def test_settings_that_do_harm_are_named_and_their_neighbours_are_not(
    overrides: dict[str, str], text: str, harmless: dict[str, str]
) -> None:
    (harm,) = harms(**overrides)

    assert text in harm
    assert harms(**harmless) == []


def test_topics_with_the_same_harm_are_named_together() -> None:
    (harm,) = harmful_settings(
        LogConfig.from_overrides(COMPACT | {"delete.retention.ms": "0"}, LogConfig())
    )
    topics = [f"t{number}" for number in range(8)]

    found = topics_by_harm(dict.fromkeys(topics, (harm,)) | {"fine": ()})

    assert found == {harm: topics}
    assert names_text(topics) == "t0, t1, t2, t3, t4 and 3 more"
    assert names_text(topics[:2]) == "t0, t1"
