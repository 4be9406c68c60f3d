"""A Delta table says which offsets it holds, even if others change it meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipeline.offsets.cut import Cut
from tests.pipeline.table_model import (
    content,
    record,
    refute_harm_of_two_streams,
    take,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::FutureWarning")]


def test_others_may_optimize_and_restore_and_the_table_still_says_what_it_holds(
    session: SparkSession, tmp_path: Path
) -> None:
    from pipeline.tables.formats.delta_table import DeltaTable

    path = str(tmp_path / "a `quoted` {table}")
    table = DeltaTable(session, path)
    take(session, table, record(0, 0, b"k", b"v"))
    take(session, table, record(0, 1, b"k", None))
    session.sql(f"OPTIMIZE {table.name}").collect()
    session.sql(f"RESTORE TABLE {table.name} TO VERSION AS OF 0").collect()

    restored = DeltaTable(session, path)
    restored.confirm()
    held = restored.held()
    assert held is not None
    assert held.offsets == {"orders": {0: 1}}
    newest = session.sql(f"DESCRIBE HISTORY {table.name} LIMIT 1").collect()[0]
    assert Cut.from_json(newest.userMetadata) == held
    take(session, restored, record(0, 1, b"k", None), record(0, 2, None, b"no key"))
    assert content(restored) == {}


def test_of_two_streams_that_commit_at_one_moment_one_is_refused_and_the_table_is_right(
    session: SparkSession, tmp_path: Path
) -> None:
    from pipeline.tables.formats.delta_table import DeltaTable

    path = str(tmp_path / "table")
    refute_harm_of_two_streams(session, lambda own: DeltaTable(own, path), batches=20)
