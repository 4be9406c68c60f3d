"""Spark ranks records as the cleaner does."""

from __future__ import annotations

import random
import struct
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from cleaner.rules.latest import NO_VERSION, version_of
from protocol.records.record import Headers
from storage.formats.compaction_strategy import BY_OFFSET, CompactionStrategy, Ranking

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::FutureWarning")]

SCHEMA = "timestamp TIMESTAMP, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
STRATEGIES = [
    BY_OFFSET,
    CompactionStrategy(Ranking.TIMESTAMP),
    CompactionStrategy(Ranking.HEADER, "version"),
]
EDGES = [NO_VERSION, NO_VERSION + 1, -1, 0, 1, 2**63 - 1, 1 << 32, -(1 << 32)]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def random_record(choices: random.Random) -> tuple[int, Headers]:
    """Returns a timestamp in ms and headers: none, several of one name, or with values of any size."""
    names = ["version", "Version", "version ", "", "other"]
    headers = tuple(
        (choices.choice(names), random_value(choices)) for _ in range(choices.randint(0, 3))
    )
    return choices.choice([-1, 0, 1, choices.randint(0, 2**42)]), headers


def random_value(choices: random.Random) -> bytes | None:
    number = choices.choice([*EDGES, choices.randint(NO_VERSION, 2**63 - 1)])
    wrong = choices.randbytes(choices.choice([0, 1, 7, 9, 16]))
    return choices.choice([struct.pack(">q", number), struct.pack(">q", number), wrong, None])


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
def test_random_records_have_the_versions_that_the_cleaner_gives_them(
    session: SparkSession, strategy: CompactionStrategy
) -> None:
    from pipeline.source import ranks

    choices = random.Random(280)
    records = [random_record(choices) for _ in range(2000)]
    # As Spark's Kafka source has them: null where there are no headers.
    rows = [(EPOCH + timedelta(milliseconds=ms), list(headers) or None) for ms, headers in records]
    frame = session.createDataFrame(rows, SCHEMA).coalesce(1)

    found = [row[0] for row in frame.select(ranks.version_of(strategy)).collect()]

    assert found == [version_of(strategy, timestamp=ms, headers=all_) for ms, all_ in records]
    assert len(set(found)) > (0 if strategy is BY_OFFSET else 30)


def test_each_topic_has_its_own_strategy_and_no_column_is_added_for_offsets(
    session: SparkSession,
) -> None:
    from pipeline.source.ranks import rank_of, versions, versions_by_topic

    by_offset, by_time, by_header = STRATEGIES
    headers = [("version", struct.pack(">q", 7))]
    rows = [(topic, EPOCH + timedelta(milliseconds=5), headers) for topic in ("o", "t", "h")]
    frame = session.createDataFrame(rows, f"topic STRING, {SCHEMA}")

    ranked = frame.select("*", *versions_by_topic({"o": by_offset, "t": by_time, "h": by_header}))

    assert {row["topic"]: row["version"] for row in ranked.collect()} == {"o": 0, "t": 5, "h": 7}
    assert rank_of(ranked) == ["version", "offset"]
    assert rank_of(frame) == ["offset"]
    assert versions_by_topic({"o": by_offset}) == versions(by_offset) == []
