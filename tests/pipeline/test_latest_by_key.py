"""The table against a model, without a broker: micro-batches come as the source would give them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pyarrow.parquet as pq
import pytest
import typer

from pipeline.latest_by_key import SCHEMA, cause, merge, parse_options
from pipeline.versioned_table import VersionedTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::FutureWarning")]

Row: TypeAlias = tuple[int, int, datetime, bytes | None, bytes | None]
"""Partition, offset, timestamp, key, value."""
WHEN = datetime(2026, 1, 1, tzinfo=UTC)


def row(partition: int, offset: int, key: bytes | None, value: bytes | None) -> Row:
    return partition, offset, WHEN, key, value


def frame(session: SparkSession, rows: Sequence[Row]) -> DataFrame:
    return session.createDataFrame(list(rows), SCHEMA)


def content(table: VersionedTable) -> dict[tuple[int, bytes], tuple[int, bytes]]:
    rows = pq.read_table(table.current.resolve()).to_pylist()
    found = {(r["partition"], r["key"]): (r["offset"], r["value"]) for r in rows}
    assert len(found) == len(rows), "a key has two rows"
    return found


def model(rows: Sequence[Row]) -> dict[tuple[int, bytes], tuple[int, bytes]]:
    last: dict[tuple[int, bytes], tuple[int, bytes | None]] = {}
    for partition, offset, _, key, value in sorted(rows, key=lambda r: r[:2]):
        if key is not None:
            last[partition, key] = (offset, value)
    return {key: (offset, value) for key, (offset, value) in last.items() if value is not None}


def test_a_tombstone_removes_its_key_and_a_later_value_brings_it_back(
    session: SparkSession, tmp_path: Path
) -> None:
    table = VersionedTable(tmp_path / "table")

    merge(session, frame(session, [row(0, 0, b"k", b"v"), row(0, 1, b"other", b"w")]), table)
    merge(session, frame(session, [row(0, 2, b"k", None)]), table)
    assert content(table) == {(0, b"other"): (1, b"w")}

    merge(session, frame(session, [row(0, 3, b"k", b"again")]), table)
    assert content(table) == {(0, b"other"): (1, b"w"), (0, b"k"): (3, b"again")}


def test_a_batch_that_comes_again_after_its_keys_died_does_not_revive_them(
    session: SparkSession, tmp_path: Path
) -> None:
    table = VersionedTable(tmp_path / "table")
    first = [row(0, 0, b"k", b"v"), row(1, 4, b"j", b"w")]
    merge(session, frame(session, first), table)
    merge(session, frame(session, [row(0, 1, b"k", None), row(0, 2, b"m", b"x")]), table)

    merge(session, frame(session, first), table)

    assert content(table) == {(1, b"j"): (4, b"w"), (0, b"m"): (2, b"x")}
    assert table.progress() == {0: 3, 1: 5}


def test_random_batches_with_replays_give_the_models_table(
    session: SparkSession, tmp_path: Path
) -> None:
    choices = random.Random(20_130_101)
    rows = [
        row(partition, offset, key, value)
        for partition in (0, 1)
        for offset in sorted(choices.sample(range(1000), 120))
        for key in [choices.choice([b"a", b"b", b"c", b"d" * 300, b"", None])]
        for value in [choices.choice([None, b"", b"%d" % offset])]
    ]
    ends = [*sorted(choices.sample(range(1000), 5)), 1000]
    table = VersionedTable(tmp_path / "table")

    start = 0
    for end in ends:
        batch = [r for r in rows if start <= r[1] < end]
        merge(session, frame(session, batch), table)
        again_from = choices.choice([0, start])
        merge(session, frame(session, [r for r in rows if again_from <= r[1] < end]), table)
        start = end

    assert content(table) == model(rows)


@pytest.mark.parametrize("text", ["kafka.security.protocol", "=value", ""])
def test_an_option_that_is_not_name_and_value_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is not name=value"):
        parse_options([text])


def test_options_may_hold_further_equals_signs() -> None:
    assert parse_options(["kafka.sasl.jaas.config=a=b"]) == {"kafka.sasl.jaas.config": "a=b"}


def test_of_a_java_stack_the_user_sees_its_last_cause() -> None:
    from pyspark.errors import PySparkException

    stack = (
        "An error occurred\n\tat x\nCaused by: java.util.concurrent.ExecutionException: y\n"
        "Caused by: org.apache.kafka.common.errors.TimeoutException: no answer\n\tat z"
    )

    assert cause(PySparkException(stack)) == "TimeoutException: no answer"
