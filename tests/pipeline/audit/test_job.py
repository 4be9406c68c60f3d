"""The strategy of an audit, from what its sides say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from cli.base.command_end import CommandFailed
from storage.formats.compaction_strategy import BY_OFFSET, CompactionStrategy, Ranking

pytest.importorskip("pyspark")

from pipeline.audit.job import strategy_of, told_strategy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.audit.side import LogSide

BY_HEADER = CompactionStrategy(Ranking.HEADER, "v")
BY_TIME = CompactionStrategy(Ranking.TIMESTAMP)


class Known:
    """A side that knows its strategy, or does not."""

    def __init__(self, known: CompactionStrategy | None) -> None:
        self._known = known

    def strategy(self, _: object) -> CompactionStrategy | None:
        return self._known


@pytest.mark.parametrize(
    ("cleaned", "original", "strategy"),
    [
        (BY_HEADER, BY_TIME, BY_HEADER),
        (BY_OFFSET, BY_TIME, BY_OFFSET),
        (None, BY_TIME, BY_TIME),
        (None, None, BY_OFFSET),
    ],
)
def test_the_cleaned_log_decides_if_it_knows_and_else_the_original(
    cleaned: CompactionStrategy | None,
    original: CompactionStrategy | None,
    strategy: CompactionStrategy,
) -> None:
    sides = [cast("LogSide", Known(each)) for each in (cleaned, original)]

    assert strategy_of(cast("SparkSession", None), *sides) == strategy


@pytest.mark.parametrize(
    ("told", "strategy"),
    [
        ([{}, {}], BY_OFFSET),
        ([{"strategy": "offset"}, {}], BY_OFFSET),
        ([{"strategy": "header v"}], BY_HEADER),
    ],
)
def test_a_broker_names_its_strategy_and_an_earlier_one_ranks_by_offset(
    told: list[dict[str, Any]], strategy: CompactionStrategy
) -> None:
    assert told_strategy(told) == strategy


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (["offset", "timestamp"], r"compaction\.strategy was changed meanwhile: try again"),
        (["newest"], "'newest' is none of offset"),
    ],
)
def test_strategies_that_differ_or_are_not_known_are_refused(
    names: list[str], sentence: str
) -> None:
    with pytest.raises(CommandFailed, match=sentence):
        told_strategy([{"strategy": name} for name in names])
