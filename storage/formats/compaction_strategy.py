"""Which record of a key is its last value: the value of `compaction.strategy`, as code uses it.

`cleaner/rules/latest.py` has the rule; docs/design/strategies.md says why there are several.

Source: KIP-280.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self


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

    @property
    def has_versions(self) -> bool:
        """Whether records have versions, so that a record may be outranked by an earlier one."""
        return self.ranking is not Ranking.OFFSET

    def __str__(self) -> str:
        return f"header {self.header}" if self.header else self.ranking.value

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
    ranking = Ranking(settings.get("compaction.strategy") or Ranking.OFFSET.value)
    header = settings.get("compaction.strategy.header", "") if ranking is Ranking.HEADER else ""
    return CompactionStrategy(ranking, header)
