"""The last record of a key: by its offset, or by its version where the topic's records have one."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypeAlias

import pytest

from storage.formats.compaction_strategy import BY_OFFSET, CompactionStrategy, Ranking

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::FutureWarning")]

Sent: TypeAlias = "tuple[bytes, bytes | None, int | None]"
"""Key, value, version."""
STRATEGIES = {
    "by_offset": BY_OFFSET,
    "by_time": CompactionStrategy(Ranking.TIMESTAMP),
    "by_header": CompactionStrategy(Ranking.HEADER, "v"),
}
WHEN = datetime(2026, 1, 1, tzinfo=UTC)
CASES: dict[str, tuple[Sequence[Sent], dict[bytes, int]]] = {
    "a late record loses": ([(b"k", b"new", 2), (b"k", b"late", 1)], {b"k": 0}),
    "of equal versions the last one wins": ([(b"k", b"1", 2), (b"k", b"2", 2)], {b"k": 1}),
    "the highest of many": ([(b"k", b"%d" % at, at % 7) for at in range(20)], {b"k": 13}),
    "a late tombstone loses": ([(b"k", b"new", 2), (b"k", None, 1)], {b"k": 0}),
    "a tombstone beats what comes late": ([(b"k", None, 2), (b"k", b"late", 1)], {b"k": 0}),
    "keys do not meet": ([(b"a", b"1", 9), (b"b", b"1", 1)], {b"a": 0, b"b": 1}),
}


def last_offsets(
    session: SparkSession, topic: str, sent: Sequence[Sent]
) -> dict[tuple[str, bytes], int]:
    """Returns the offset of each key's last record."""
    from pipeline.source.ranks import versions_by_topic
    from pipeline.tables.latest import SCHEMA, latest

    rows = [
        (
            topic,
            0,
            offset,
            WHEN + timedelta(milliseconds=version or 0),
            key,
            value,
            headers(version),
        )
        for offset, (key, value, version) in enumerate(sent)
    ]
    schema = f"{SCHEMA}, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
    frame = session.createDataFrame(rows, schema).select("*", *versions_by_topic(STRATEGIES))
    return {(row["topic"], bytes(row["key"])): row["offset"] for row in latest(frame).collect()}


def headers(version: int | None) -> list[tuple[str, bytes]] | None:
    return None if version is None else [("v", struct.pack(">q", version))]


@pytest.mark.parametrize("topic", ["by_time", "by_header"])
@pytest.mark.parametrize("case", CASES)
def test_the_highest_version_wins(session: SparkSession, topic: str, case: str) -> None:
    sent, expected = CASES[case]

    assert last_offsets(session, topic, sent) == {
        (topic, key): offset for key, offset in expected.items()
    }


def test_a_record_without_the_header_has_the_lowest_version(session: SparkSession) -> None:
    sent = [(b"k", b"1", -5000), (b"k", b"none", None), (b"j", b"1", None), (b"j", None, None)]

    assert last_offsets(session, "by_header", sent) == {
        ("by_header", b"k"): 0,
        ("by_header", b"j"): 3,
    }


def test_beside_topics_with_versions_others_rank_by_offset(session: SparkSession) -> None:
    sent = [(b"k", b"new", 2), (b"k", b"late", 1)]

    assert last_offsets(session, "by_offset", sent) == {("by_offset", b"k"): 1}
