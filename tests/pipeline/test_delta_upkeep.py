"""A Delta table that others optimize and restore says which offsets it holds all the same."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipeline.cut import Cut
from pipeline.payload_options import Payload
from tests.pipeline.table_model import NOTHING, Record, content, frame, record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.delta_table import DeltaTable

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::FutureWarning")]


def take(session: SparkSession, table: DeltaTable, *records: Record) -> None:
    from pipeline.table_job import bring_in

    bring_in(frame(session, records), table, Payload(), NOTHING)


def test_others_may_optimize_and_restore_and_the_table_still_says_what_it_holds(
    session: SparkSession, tmp_path: Path
) -> None:
    from pipeline.delta_table import DeltaTable

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
