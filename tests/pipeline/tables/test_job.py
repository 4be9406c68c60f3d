"""Tables of both formats against a model, without a broker: micro-batches come as Spark's would."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pytest

from pipeline.tables.payload_options import OnUnparsable, Payload, PayloadFormat
from tests.pipeline.table_kinds import KINDS, table_at
from tests.pipeline.table_model import (
    NOTHING,
    Record,
    below,
    content,
    frame,
    model,
    record,
    take,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.tables.formats.table import Table

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::FutureWarning")]

Opened: TypeAlias = "Callable[[], Table]"
"""Opens the table, as a new process would."""


@pytest.fixture(params=KINDS)
def opened(request: pytest.FixtureRequest, session: SparkSession, tmp_path: Path) -> Opened:
    return lambda: table_at(request.param, session, tmp_path / "table")


def test_its_size_is_that_of_its_files(
    session: SparkSession, opened: Opened, tmp_path: Path
) -> None:
    table = opened()
    take(session, table, record(0, 0, b"k", b"v"))
    size = table.size()
    assert size.files >= 1
    if "Iceberg" not in type(table).__name__:
        on_disk = [each.stat().st_size for each in (tmp_path / "table").rglob("*.parquet")]
        # Delta also writes a file without rows, which it leaves out of the table.
        assert size.files <= len(on_disk)
        assert max(on_disk) <= size.size <= sum(on_disk)


def test_tombstones_delete_and_neither_replays_nor_batches_out_of_order_revive(
    session: SparkSession, opened: Opened
) -> None:
    table = opened()
    first = record(0, 0, b"k", b"v"), record(1, 4, b"j", b"w")
    take(session, table, *first)
    take(session, table, record(0, 1, b"k", None), record(0, 2, b"m", b"x"))
    assert content(table) == {("orders", 1, b"j"): (4, b"w"), ("orders", 0, b"m"): (2, b"x")}

    again = opened()
    take(session, again, *first)
    assert content(again) == {("orders", 1, b"j"): (4, b"w"), ("orders", 0, b"m"): (2, b"x")}

    take(session, again, record(0, 3, b"k", b"again"), record(0, 4, b"absent", None))
    assert content(again)["orders", 0, b"k"] == (3, b"again")
    held = opened().held()
    assert held is not None
    assert held.offsets == {"orders": {0: 5, 1: 5}}


def test_two_streams_into_one_table_go_on_from_what_the_other_has_left(
    session: SparkSession, opened: Opened
) -> None:
    one, other = opened(), opened()
    records = [record(0, 0, b"k", b"v"), record(0, 1, b"k", None), record(0, 2, b"j", b"w")]
    take(session, one, *records[:1])
    take(session, other, *records)
    take(session, one, *records[:2])

    assert content(one) == model(records)
    held = one.held()
    assert held is not None
    assert held.offsets == {"orders": {0: 3}}


def test_a_table_may_be_partitioned_by_a_column_of_the_values(
    session: SparkSession, tmp_path: Path
) -> None:
    from pipeline.tables.formats.parquet_table import ParquetTable
    from pipeline.tables.formats.table import Layout
    from pipeline.tables.job import bring_in

    payload = Payload(value_format=PayloadFormat.JSON, on_unparsable=OnUnparsable.KEEP)
    layout = Layout(partition_by=["day"], write_options={"compression": "zstd"})
    table = ParquetTable(session, str(tmp_path / "table"), layout)
    first = [record(0, 0, b"k", b'{"day": "01", "n": 1}'), record(0, 1, b"j", b'{"day": "02"}')]
    second = [record(0, 2, b"k", b'{"day": "02", "n": 2}'), record(0, 3, b"i", b"none")]
    for batch in (first, second):
        bring_in(frame(session, batch), table, payload, NOTHING)

    rows = table.read().select("key", "day", "n", "_unparsed").orderBy("key").collect()
    assert [tuple(row) for row in rows] == [
        (b"i", None, None, b"none"),
        (b"j", "02", None, None),
        (b"k", "02", 2, None),
    ]
    assert list((table.current / "day=02").glob("*.zstd.parquet"))


class Killed(Exception):
    """The driver dies here."""


def test_random_batches_with_replays_and_kills_are_always_the_models_table_of_their_offsets(
    session: SparkSession, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    choices = random.Random(20_130_101)
    records = random_records(choices)
    ends = [*sorted(choices.sample(range(100), 2)), 100]

    for end in ends:
        for kill in choices.sample([None, "before", "after"], 2):
            table = opened()
            held = table.held() or NOTHING
            start = choices.choice([0, min(held.offsets.get("orders", {0: 0}).values())])
            batch = [r for r in records if start <= r[2] < end]
            with monkeypatch.context() as patch:
                if kill is not None:
                    patch_kill(patch, type(table), kill)
                with contextlib.suppress(Killed):
                    take(session, table, *batch)
            now = opened().held()
            if now is not None:
                assert content(opened()) == model(below(records, now.offsets))
    take(session, opened(), *records)
    assert content(opened()) == model(records)


def random_records(choices: random.Random) -> list[Record]:
    return [
        record(partition, offset, key, value)
        for partition in (0, 1)
        for offset in sorted(choices.sample(range(100), 60))
        for key in [choices.choice([b"a", b"b", b"c", b"d" * 300, b"", None])]
        for value in [choices.choice([None, b"", b"%d" % offset])]
    ]


def patch_kill(patch: pytest.MonkeyPatch, kind: type, when: str) -> None:
    """Die before or after the commit of rows and offsets."""
    for name in ("merge", "replace"):
        real = getattr(kind, name)

        def dying(self: object, *arguments: object, real: Callable[..., None] = real) -> None:
            if when == "after":
                real(self, *arguments)
            raise Killed

        patch.setattr(kind, name, dying)
