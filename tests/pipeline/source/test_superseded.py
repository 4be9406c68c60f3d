"""Spark's marks of several logs in one job are the local cleaner's marks of each."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from pipeline.source.key_entries import key_entries
from pipeline.source.superseded import marked
from tests.harness.random_log import local_marks, random_log
from tests.pipeline.source.test_key_entries import numbered

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_spark_marks_what_the_cleaner_marks(session: SparkSession) -> None:
    random = Random(8)
    batches: list[pa.RecordBatch] = []
    counts: dict[int, int] = {}
    expected = []
    for number in range(5):
        log = random_log(random, batches=150, keys=40, transactions=number % 2 == 0)
        segments, section, its = local_marks(log, random.randrange(log.log.log_end_offset))
        numbers = numbered(segments, section, log=number, first=len(counts))
        for each, segment in zip(numbers, segments, strict=True):
            batches += key_entries(each, segment.blocks())
            counts[each.number] = segment.totals.entries
        expected += its

    found = marked(session.createDataFrame(pa.Table.from_batches(batches)), counts)

    assert [found[number] for number in range(len(expected))] == expected
    assert sum(its.superseded for its in expected) > 100


def test_without_entries_nothing_is_marked(session: SparkSession) -> None:
    empty = session.createDataFrame([], "high bigint, low bigint, place bigint")

    assert not any(its.superseded for its in marked(empty, {0: 9, 1: 0}).values())
