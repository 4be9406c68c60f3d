"""Tables of a captured table: by `kompakt pipeline table` and `kompakt export`, compared with it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.table import StaticTable
from typer.testing import CliRunner

import pipeline.tables.command
from cli.commands import app as commands
from pipeline.cli import app
from tests.harness.change_capture import CONNECTOR, ChangeCapture
from tests.harness.duckdb_reader import with_extensions
from tests.harness.exported_log import CATALOG, NAME, catalog_properties, table_in
from tests.harness.shop_database import ShopTable
from tests.harness.table_driver import TableDriver
from tests.pipeline.table_kinds import iceberg_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = Mapping[str, Any]
Rows = dict[tuple[Any, ...], Row]
OUR_COLUMNS = {"key", "_topic", "_partition", "_topic_partition", "_offset", "_timestamp"}
READ: dict[str, Callable[[str], Any]] = {
    "uuid": UUID,
    "jsonb": json.loads,
    "timestamp with time zone": datetime.fromisoformat,
}
"""By the type in the database: how to read what Debezium always writes as text."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended, and its last line."""

    code: int
    said: str


@dataclass(frozen=True, slots=True)
class Difference:
    """A column of a row that is not as in the database."""

    key: tuple[Any, ...]
    column: str
    found: Any
    expected: Any


class CapturedTable:
    """A table of the database, its topic, and the table that follows it: in Delta, or in Iceberg."""

    def __init__(
        self, capture: ChangeCapture, table: ShopTable, folder: Path, lake: Path | None = None
    ) -> None:
        """`lake` is the warehouse of the session's Iceberg catalog, if the table is to be in it."""
        self.topic = f"{CONNECTOR}.public.{table.name}"
        self.path = folder / table.name
        self._table = table
        self._lake = lake
        self._capture = capture

    def stream(self, *options: str) -> Ended:
        """Merge what the topic has now; new columns are added, unless the options say otherwise."""
        return self._run("stream", "--evolution", "add", *options)

    def batch(self, *options: str) -> Ended:
        """Write the table again."""
        return self._run("batch", *options)

    def driver(self, *options: str, offsets_per_batch: int) -> TableDriver:
        """Returns a stream in a process of its own."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        return TableDriver(
            self._capture.broker.bootstrap_servers,
            self.topic,
            self.path,
            self.path.with_name(f"{self._table.name}.log"),
            options=[*self._place(), *self._catalog(), *self._payload_options(), *options],
            offsets_per_batch=offsets_per_batch,
            commits=None if self._lake is None else self._metadata(self._lake),
        )

    def refute_difference(self) -> None:
        """Check that the table has the rows and the columns of the database's table."""
        found = self.differences()
        assert not found, f"{self.topic} differs {len(found)} times: {found[:3]}"

    def refute_difference_in_duckdb(self) -> None:
        """Check the same, as DuckDB reads the table."""
        if self._lake is None:
            scan = f"delta_scan('{self.path}')"
        else:
            scan = f"iceberg_scan('{self._newest_metadata(self._lake)}')"
        rows = with_extensions().sql(f"SELECT * FROM {scan}").to_arrow_table()
        found = self._differences(self._rows_of(rows))
        assert not found, f"{self.topic} differs {len(found)} times in DuckDB: {found[:3]}"

    def refute_difference_of_export(self, kind: str) -> None:
        """Export the topic, and check that as well, by a reader of that format."""
        said = CliRunner().invoke(commands, self._export_line(kind))
        assert said.exit_code == 0, said.output
        found = self._differences(self._rows_of(table_in(kind, self._export_folder)))
        assert not found, f"{self.topic}, exported, differs {len(found)} times: {found[:3]}"

    def differences(self) -> list[Difference]:
        """Returns all differences; a column that one side lacks is `...` there."""
        return self._differences(self._rows_of(self._followed()))

    def _followed(self) -> pa.Table:
        """Returns the table that follows the topic, as delta-rs or PyIceberg reads it."""
        if self._lake is None:
            return DeltaTable(self.path).to_pyarrow_table()
        found = StaticTable.from_metadata(str(self._newest_metadata(self._lake)))
        return found.scan().to_arrow()

    def _newest_metadata(self, lake: Path) -> Path:
        folder = self._metadata(lake)
        version = (folder / "version-hint.text").read_text().strip()
        return folder / f"v{version}.metadata.json"

    def _metadata(self, lake: Path) -> Path:
        _, namespace, name = iceberg_name(self.path).split(".")
        return lake / namespace / name / "metadata"

    def _differences(self, found: Rows) -> list[Difference]:
        expected = self._database_rows()
        return [
            difference
            for key in sorted(found.keys() | expected.keys())
            for difference in differences(key, found.get(key, {}), expected.get(key, {}))
        ]

    def _database_rows(self) -> Rows:
        with self._capture.postgres.connect() as connection:
            cursor = connection.execute(f"SELECT * FROM {self._table.name}".encode())
            names = [column.name for column in cursor.description or ()]
            return self._by_key(dict(zip(names, row, strict=True)) for row in cursor)

    def _rows_of(self, table: pa.Table) -> Rows:
        """Returns the rows of a table, as a program without Spark has read it, in the types of the
        database."""
        readers = {name: READ[kind] for name, kind in self._column_types() if kind in READ}
        return self._by_key(self._read(row, readers) for row in table.to_pylist())

    def _read(self, row: Row, readers: Mapping[str, Callable[[str], Any]]) -> Row:
        assert row["key"] == {name: row[name] for name in self._table.key_columns}
        return {
            name: readers[name](value) if name in readers and value is not None else value
            for name, value in row.items()
            if name not in OUR_COLUMNS
        }

    def _by_key(self, rows: Iterator[Row]) -> Rows:
        found: Rows = {}
        for row in rows:
            key = tuple(row[name] for name in self._table.key_columns)
            assert key not in found, f"{self.topic}: {key} has two rows"
            found[key] = row
        return found

    def _column_types(self) -> list[tuple[Any, ...]]:
        return self._capture.postgres.rows(
            "SELECT column_name, data_type FROM information_schema.columns"
            f" WHERE table_name = '{self._table.name}'"
        )

    @property
    def _export_folder(self) -> Path:
        return self.path.with_name(f"{self._table.name}-exported")

    def _export_line(self, kind: str) -> list[str]:
        folder = self._export_folder
        folder.mkdir(parents=True, exist_ok=True)
        line = ["export", self.topic, "--data-dir", str(self._capture.broker.data_dir)]
        line += ["--format", kind, *self._payload_options()]
        if kind != "iceberg":
            return [*line, "--to", str(folder / kind)]
        properties = catalog_properties(folder).items()
        line += [f"--catalog-property={name}={each}" for name, each in properties]
        return [*line, "--to", NAME, "--catalog", CATALOG]

    def _place(self) -> list[str]:
        if self._lake is None:
            return ["--table", str(self.path)]
        return ["--table", iceberg_name(self.path), "--format", "iceberg"]

    def _catalog(self) -> list[str]:
        """Returns the properties of the session's catalog, for a session of another process."""
        if self._lake is None:
            return []
        return ["--catalog-property", "type=hadoop", f"--catalog-property=warehouse={self._lake}"]

    def _payload_options(self) -> list[str]:
        options = ["--envelope", "debezium", "--schema-registry", self._capture.registry.url]
        for part in ("key", "value"):
            schema = f"subject:{self.topic}-{part}"
            options += [f"--{part}-format", "avro", f"--{part}-schema", schema]
        return options

    def _run(self, command: str, *more: str) -> Ended:
        line = ["table", command, "-b", self._capture.broker.bootstrap_servers]
        line += ["--topic", self.topic, *self._place(), *self._payload_options()]
        result = CliRunner().invoke(app, [*line, *more])
        lines = result.output.strip().splitlines()
        return Ended(result.exit_code, lines[-1] if lines else repr(result.exception))


def differences(key: tuple[Any, ...], found: Row, expected: Row) -> Iterator[Difference]:
    """Yields the columns of a row that differ; floating-point numbers must have the same digits."""
    for column in sorted(found.keys() | expected.keys()):
        one, other = found.get(column, ...), expected.get(column, ...)
        is_float = isinstance(one, float) and isinstance(other, float)
        if repr(one) != repr(other) if is_float else one != other:
            yield Difference(key, column, one, other)


def use_session(monkeypatch: pytest.MonkeyPatch, session: SparkSession) -> None:
    """Let commands run in a session that others use, too: a start of Spark takes half a minute."""

    def session_of(_: object) -> AbstractContextManager[SparkSession]:
        return nullcontext(session)

    monkeypatch.setattr(pipeline.tables.command, "session_of", session_of)
