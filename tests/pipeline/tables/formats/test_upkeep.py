"""A stream rewrites the small files of its micro-batches, and the table stays what it was."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipeline.offsets.cut import TableRefused
from tests.pipeline.table_kinds import MERGED_KINDS, table_at
from tests.pipeline.table_model import content, record, take

pytest.importorskip("pyspark")

from pipeline.tables.formats.table import TableSize, Upkeep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.tables.formats.table import Table

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::FutureWarning")]
BATCHES = 5


def grown(session: SparkSession, table: Table) -> None:
    for at in range(BATCHES):
        take(session, table, record(0, at, b"%d" % (at % 4), b"%d" % at))


@pytest.mark.parametrize("kind", MERGED_KINDS)
def test_a_table_with_too_many_small_files_is_rewritten(
    session: SparkSession, tmp_path: Path, kind: str
) -> None:
    from pipeline.tables.job import keep_up

    table = table_at(kind, session, tmp_path / "table")
    grown(session, table)
    files, rows, held = table.size().files, content(table), table.held()
    assert files > 2
    assert keep_up(table, Upkeep(small_files_max=files), None) is None
    assert table.size().files == files

    retain = 0 if kind == "iceberg" else 168
    upkeep = Upkeep(small_files_max=1, retain_hours=retain)
    left = keep_up(table, upkeep, None)
    assert left == table.size().files < files
    assert keep_up(table, upkeep, left) == left
    again = table_at(kind, session, tmp_path / "table")
    again.confirm()
    assert (content(again), again.held()) == (rows, held)
    take(session, again, record(0, BATCHES, b"0", None))
    assert ("orders", 0, b"0") not in content(again)


def test_another_writer_at_the_same_moment_lets_the_files_stay(
    session: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from pipeline.tables.formats.delta_table import DeltaTable
    from pipeline.tables.job import keep_up

    table = DeltaTable(session, str(tmp_path / "table"))
    grown(session, table)

    def conflict(*_: object) -> None:
        raise TableRefused("another program wrote it")

    monkeypatch.setattr(DeltaTable, "compact", conflict)
    assert keep_up(table, Upkeep(small_files_max=1), 2) == 2
    assert "small files stay for now: another program wrote it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("size", "files_before", "is_due"),
    [
        (TableSize(10, 1000), None, False),
        (TableSize(11, 1000), None, True),
        (TableSize(11, 5_000, file_target=5_000), None, False),
        (TableSize(12, 5_000, file_target=5_000), None, True),
        (TableSize(500, 1000), 490, False),
        (TableSize(501, 1000), 490, True),
    ],
)
def test_it_is_due_when_more_files_than_the_large_ones_or_those_of_partitions_are_there(
    size: TableSize, files_before: int | None, is_due: bool
) -> None:
    assert Upkeep(small_files_max=10).is_due(size, files_before) == is_due
