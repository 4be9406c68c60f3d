"""A topic's settings say which record of a key is the last one."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from pipeline.offsets.cut import TableRefused
from storage.formats.compaction_strategy import BY_OFFSET, CompactionStrategy, Ranking

pytest.importorskip("pyspark")

from pipeline.offsets.topic_settings import strategy_of

STRATEGY, HEADER = "compaction.strategy", "compaction.strategy.header"


@pytest.mark.parametrize(
    ("settings", "strategy"),
    [
        ({}, BY_OFFSET),
        ({STRATEGY: "offset", HEADER: "unused"}, BY_OFFSET),
        ({STRATEGY: "timestamp", HEADER: ""}, CompactionStrategy(Ranking.TIMESTAMP)),
        ({STRATEGY: "header", HEADER: "v"}, CompactionStrategy(Ranking.HEADER, "v")),
    ],
)
def test_settings_name_a_strategy_and_a_broker_without_them_ranks_by_offset(
    settings: Mapping[str, str], strategy: CompactionStrategy
) -> None:
    assert strategy_of("orders", settings) == strategy


def test_a_strategy_of_a_later_release_is_refused() -> None:
    with pytest.raises(TableRefused, match=r"orders has compaction\.strategy=newest, which"):
        strategy_of("orders", {STRATEGY: "newest"})
