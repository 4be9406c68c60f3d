"""A Delta table knows which offsets it holds, even if others commit to it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipeline.offsets.cut import Cut, TableRefused

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::FutureWarning")]


def commit(
    version: int, offset: int | None = None, restored: str | None = None, operation: str = "MERGE"
) -> Row:
    from pyspark.sql import Row

    said = None if offset is None else Cut({"t": {0: offset}}, {"t": "id"}).to_json()
    if operation == "RESTORE":
        return Row(
            version=version,
            operation=operation,
            operationParameters={"version": restored},
            userMetadata=said,
        )
    return Row(version=version, operation=operation, operationParameters={}, userMetadata=said)


def offset_of(*commits: Row) -> int | None:
    from pipeline.tables.formats.delta_table import cut_of

    cut = cut_of(commits)
    return None if cut is None else cut.offsets["t"][0]


def test_the_newest_commit_of_ours_counts_below_those_of_others() -> None:
    assert offset_of(commit(2, operation="OPTIMIZE"), commit(1, 20), commit(0, 10)) == 20
    assert offset_of(commit(0, operation="WRITE")) is None
    assert offset_of() is None


def test_a_restored_table_holds_what_the_version_held_that_came_back() -> None:
    history = commit(2, 30), commit(1, 20), commit(0, 10)

    assert offset_of(commit(3, restored="1", operation="RESTORE"), *history) == 20
    assert offset_of(commit(4, 25), commit(3, restored="1", operation="RESTORE"), *history) == 25
    assert offset_of(commit(3, restored=None, operation="RESTORE"), *history) is None


def test_a_table_of_somebody_else_is_refused(session: SparkSession, tmp_path: Path) -> None:
    from pipeline.tables.formats.delta_table import DeltaTable

    session.range(3).write.format("delta").save(str(tmp_path / "theirs"))

    with pytest.raises(TableRefused, match="does not say which offsets it holds"):
        DeltaTable(session, str(tmp_path / "theirs")).held()
