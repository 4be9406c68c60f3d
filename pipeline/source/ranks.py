"""Ranks records as `cleaner/rules/latest.py` does, as columns for Spark: by version, then by offset."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cleaner.rules.latest import NO_VERSION
from cleaner.rules.latest import VERSION as VERSION_FORMAT
from storage.formats.compaction_strategy import CompactionStrategy, Ranking

VERSION = "version"
"""The name of the column of versions."""
OFFSET = "offset"


def rank_of(records: DataFrame) -> list[str]:
    """Returns the columns by which the records of a key are compared, the most significant first."""
    return [VERSION, OFFSET] if VERSION in records.columns else [OFFSET]


def versions(strategy: CompactionStrategy) -> list[Column]:
    """Returns the column of versions to add to records of one topic; none if they have no versions."""
    return [version_of(strategy).alias(VERSION)] if strategy.has_versions else []


def versions_by_topic(strategies: Mapping[str, CompactionStrategy]) -> list[Column]:
    """Returns the column of versions to add to records of these topics; none if none has versions."""
    ranked = {topic: each for topic, each in strategies.items() if each.has_versions}
    found = F.lit(0).cast("bigint")
    for topic, strategy in ranked.items():
        found = F.when(F.col("topic") == topic, version_of(strategy)).otherwise(found)
    return [found.alias(VERSION)] if ranked else []


def version_of(strategy: CompactionStrategy) -> Column:
    """Returns a record's version, from the columns of Spark's Kafka source."""
    match strategy.ranking:
        case Ranking.OFFSET:
            return F.lit(0).cast("bigint")
        case Ranking.TIMESTAMP:
            return F.unix_millis("timestamp")
        case Ranking.HEADER:
            return version_in(strategy.header)


def version_in(header: str) -> Column:
    """Returns the version in the last header of this name; the lowest one if it is no 8 bytes."""
    named = F.filter("headers", lambda each: each["key"] == header)
    value = F.try_element_at(named, F.lit(-1))["value"]
    # To a negative base, conv() returns the signed number of 64 bits.
    number = F.conv(F.hex(value), 16, -10).cast("bigint")
    return F.when(F.length(value) == VERSION_FORMAT.size, number).otherwise(F.lit(NO_VERSION))
