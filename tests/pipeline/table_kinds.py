"""The kinds of tables that this Spark can write, for tests of what they have in common."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.spark.jars import has_iceberg
from pipeline.tables.formats.evolution import Evolution
from pipeline.tables.options import TableFormat
from pipeline.tables.place import Place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.tables.formats.table import Layout, Table

CATALOG = "lake"
"""The catalog of all Iceberg tables of the tests' session."""


MERGED_KINDS = ("delta", "iceberg") if has_iceberg() else ("delta",)
"""Those that a MERGE changes, and that may be histories."""
KINDS = (*MERGED_KINDS, "parquet")


def table_at(
    kind: str,
    session: SparkSession,
    path: Path,
    layout: Layout | None = None,
    evolution: Evolution = Evolution.STRICT,
    *,
    is_history: bool = False,
) -> Table:
    """Open the table of a kind that has this path, or in Iceberg a name made from it."""
    from pipeline.tables.formats.table import DEFAULT_LAYOUT

    place = Place(
        path=iceberg_name(path) if kind == "iceberg" else str(path), format=TableFormat(kind)
    )
    return place.table(session, layout or DEFAULT_LAYOUT, evolution, is_history=is_history)


def iceberg_name(path: Path) -> str:
    namespace = re.sub(r"\W", "_", str(path.parent)).strip("_")
    return f"{CATALOG}.{namespace}.{path.name}"
