"""DuckDB as a reader of tables: with its extensions, which are installed as Python packages."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import duckdb


def with_extensions() -> duckdb.DuckDBPyConnection:
    """Returns a connection to a database in memory that reads Delta and Iceberg."""
    connection = duckdb.connect()
    for name in ("avro", "delta", "iceberg"):
        spec = find_spec(f"duckdb_extension_{name}")
        assert spec is not None
        assert spec.origin is not None
        (path,) = Path(spec.origin).parent.rglob("*.duckdb_extension")
        connection.execute(f"LOAD '{path}'")
    return connection
