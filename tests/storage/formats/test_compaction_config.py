"""The settings of a topic that are about compaction."""

from __future__ import annotations

import pytest

from storage.formats.config_property import ConfigError
from storage.formats.log_config import LogConfig

DEFAULTS = LogConfig()


def test_the_least_compaction_lag_may_not_exceed_the_greatest() -> None:
    LogConfig.from_overrides({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "5"}, DEFAULTS)

    with pytest.raises(ConfigError, match=r"min\.compaction\.lag\.ms \(6\) > max"):
        LogConfig.from_overrides(
            {"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"}, DEFAULTS
        )


def test_a_lag_that_contradicts_the_brokers_default_is_refused() -> None:
    broker = LogConfig(max_compaction_lag_ms=100)

    with pytest.raises(ConfigError):
        LogConfig.from_overrides({"min.compaction.lag.ms": "101"}, broker)


@pytest.mark.parametrize("text", ["*", "a*b", "**", "a,*"])
def test_a_group_that_holds_is_a_name_or_a_prefix(text: str) -> None:
    with pytest.raises(ConfigError, match=r"compaction\.hold\.groups: must be the name of a group"):
        LogConfig.from_overrides({"compaction.hold.groups": text}, DEFAULTS)


def test_groups_that_hold_are_a_list_of_names_and_prefixes() -> None:
    text = "__mirror.*, billing"
    config = LogConfig.from_overrides({"compaction.hold.groups": text}, DEFAULTS)
    assert config.compaction_hold_groups == ("__mirror.*", "billing")
