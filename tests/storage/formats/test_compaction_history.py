"""The settings that say which older values of a key stay."""

from __future__ import annotations

import pytest

from storage.formats.compaction_history import (
    CELLS_MAX,
    CompactionHistory,
    ThinningStep,
    parse_thinning,
    thinning_text,
)
from storage.formats.config_property import ConfigError
from storage.formats.log_config import LogConfig

HOUR, DAY = 3_600_000, 86_400_000


def config_of(**overrides: str) -> LogConfig:
    named = {name.replace("_", "."): text for name, text in overrides.items()}
    return LogConfig.from_overrides(named, LogConfig())


def test_steps_are_read_as_they_are_written() -> None:
    text = "all for 1h, one per 1h for 1d, one per 1d for 1y"

    steps = parse_thinning(text)

    assert steps == (ThinningStep(0, HOUR), ThinningStep(HOUR, DAY), ThinningStep(DAY, 365 * DAY))
    assert thinning_text(steps) == text


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("", ""),
        ("   ", ""),
        ("one  per 60s for 90m", "one per 1m for 90m"),
        ("all for 48h,one per 7d for 104w", "all for 2d, one per 1w for 104w"),
    ],
)
def test_spaces_and_units_may_differ(text: str, written: str) -> None:
    assert thinning_text(parse_thinning(text)) == written


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("keep all", "is not a step like"),
        ("all for 1h,", "is not a step like"),
        ("all for 1 h", "is not a step like"),
        ("all for 1month", "is not a step like"),
        ("one per -1h for 1d", "is not a step like"),
        ("all for 0s", "0s is not between 1s and 100y"),
        ("all for 101y", "101y is not between 1s and 100y"),
        ("all for 999999999999999999y", "is not between 1s and 100y"),
        ("one per 1h for 1d, all for 2d", "must be the first step"),
        ("all for 1d, one per 1h for 1h", "must reach further back"),
        ("one per 2d for 1d", "has a period longer than its age"),
        ("one per 1h for 1d, one per 90m for 2d", "must be a multiple of the one before it, 1h"),
        ("one per 1h for 1d, one per 1h for 2d", "must be a multiple of the one before it, 1h"),
        ("one per 1s for 1y", f"more than {CELLS_MAX}"),
        ("one per 1s for 1h, one per 1y for 10y", f"more than {CELLS_MAX}"),
        (", ".join(f"one per 1d for {age}d" for age in range(1, 18)), "at most 16 steps"),
    ],
)
def test_other_texts_are_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_thinning(text)
    with pytest.raises(ConfigError, match=f"for configuration compaction.thinning: .*{reason}"):
        config_of(compaction_thinning=text)


def test_a_topic_has_the_history_of_its_settings() -> None:
    config = config_of(compaction_versions="3", compaction_thinning="all for 1h, one per 1d for 1w")

    assert config.history == CompactionHistory(3, parse_thinning("all for 1h, one per 1d for 1w"))
    assert str(config.history) == "the last 3 values; all for 1h, one per 1d for 1w"
    assert config.strategy.has_timestamps
    assert not config_of(compaction_versions="3").strategy.has_timestamps
    assert not config_of().history.keeps_more


@pytest.mark.parametrize(
    "setting", [{"compaction_versions": "2"}, {"compaction_thinning": "all for 1h"}]
)
def test_older_values_and_versions_do_not_go_together(setting: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="keeps only the last value of a key"):
        config_of(compaction_strategy="timestamp", **setting)


def test_a_key_has_no_more_periods_than_are_counted() -> None:
    history = CompactionHistory(
        steps=parse_thinning("all for 1h, one per 1h for 1d, one per 1d for 1y")
    )

    # Hours stay until their whole day is older than a day.
    assert history.cells_max == 1 + (23 + 23 + 2) + (364 + 2)
