"""Which record of a key is its last value: the value of `compaction.strategy`, as code uses it.

`cleaner/rules/latest.py` has the rule; docs/design/strategies.md says why there are several.

Source: KIP-280.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Self

STRATEGY = "compaction.strategy"
STRATEGY_HEADER = "compaction.strategy.header"
STRATEGY_PROPERTIES = STRATEGY, STRATEGY_HEADER
"""The properties of a topic from which `strategy_from` takes its strategy."""


class Ranking(enum.Enum):
    """What gives a record its version; each value is one of `compaction.strategy`."""

    OFFSET = "offset"
    """Nothing: the last record of a key wins."""
    TIMESTAMP = "timestamp"
    """Its timestamp."""
    HEADER = "header"
    """A header with 8 bytes, a signed big-endian integer."""


@dataclass(frozen=True, slots=True)
class CompactionStrategy:
    """How the records of a key are ranked."""

    ranking: Ranking = Ranking.OFFSET
    header: str = ""
    """The name of the header; empty unless the ranking is by header."""
    has_timestamps: bool = False
    """Whether the log's key sidecars have timestamps, although the ranking is by offset: to thin older
    values by age (`compaction.thinning`)."""

    @property
    def has_versions(self) -> bool:
        """Whether records have versions, so that a record may be outranked by an earlier one."""
        return self.ranking is not Ranking.OFFSET

    @property
    def column(self) -> Ranking:
        """Which number of each record the log's key sidecars have: its version, or a timestamp; none if
        it is OFFSET."""
        return Ranking.TIMESTAMP if self.has_timestamps else self.ranking

    @property
    def has_column(self) -> bool:
        """Whether the log's key sidecars have a number of each record."""
        return self.column is not Ranking.OFFSET

    def by_rank(self) -> CompactionStrategy:
        """Returns how records are ranked; the columns of the key sidecars do not count."""
        return replace(self, has_timestamps=False)

    def __str__(self) -> str:
        return f"header {self.header}" if self.header else self.ranking.value

    @property
    def text(self) -> str:
        """Returns it with what the key sidecars have, for messages."""
        return f"{self} with timestamps" if self.has_timestamps else str(self)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the form that `str` returns: `offset`, `timestamp` or `header NAME`.

        Raises:
            ValueError: the text has another form; the message is one sentence.
        """
        ranking, _, header = text.partition(" ")
        if text not in ("offset", "timestamp") and not (ranking == "header" and header):
            raise ValueError(f"{text!r} is none of offset, timestamp and 'header NAME'")
        return cls(Ranking(ranking), header)


BY_OFFSET = CompactionStrategy()


def strategy_from(settings: Mapping[str, str]) -> CompactionStrategy:
    """Returns the strategy of a topic with these settings; without them, by offset.

    Raises:
        ValueError: `compaction.strategy` has a value of another release.
    """
    return strategy_of(
        settings.get(STRATEGY) or Ranking.OFFSET.value, settings.get(STRATEGY_HEADER, "")
    )


@lru_cache(maxsize=1024)  # Each look at a log asks for its strategy.
def with_timestamps(strategy: CompactionStrategy) -> CompactionStrategy:
    """Returns the strategy of a log whose older values are thinned."""
    return replace(strategy, has_timestamps=True)


@lru_cache(maxsize=1024)
def strategy_of(ranking: str, header: str) -> CompactionStrategy:
    """Returns the strategy with these values of its two properties. Raises ValueError."""
    return CompactionStrategy(Ranking(ranking), header if ranking == Ranking.HEADER.value else "")
