"""A Delta table, as the jobs on Spark have it (`pipeline/tables/formats/delta_table.py`), by delta-rs.

A commit adds the new files and removes those that the table no longer has. The offsets are its
`userMetadata`. Files that were removed stay until a VACUUM, for readers of earlier versions.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from deltalake.transaction import (
    AddAction,
    CommitProperties,
    RemoveAction,
    create_table_with_add_actions,
)

from pipeline.export.data_file import DataFile
from pipeline.export.target import Place
from pipeline.offsets.cut import Cut, TableRefused
from pipeline.tables.formats.column_names import VALID_TO_OFFSET

KEPT_FEATURES = frozenset({"timestampNtz"})
"""Features of a table, for its readers, with which its files still have exactly its rows."""
COLUMN_MAPPING = "delta.columnMapping.mode"
USER_METADATA = "userMetadata"


class DeltaTarget:
    """The table at `path`, on a local file system."""

    def __init__(self, path: str) -> None:
        """Open it. Raises TableRefused: the path is not on a local file system."""
        if "://" in path:
            raise TableRefused(f"{path}: an export writes Delta tables to a local file system")
        self._path = Path(path.removeprefix("file:")).absolute()
        self._table = _opened(self._path)

    def held(self) -> Cut | None:
        if self._table is None:
            if self._path.is_dir() and any(self._path.glob("[!.]*")) and not self._has_only_ours():
                raise TableRefused(f"{self._path} holds other data than one of our tables")
            return None
        self._refuse_other_layouts(self._table)
        for commit in self._table.history():
            if commit.get("operation") == "RESTORE":
                break
            cut = Cut.from_json(commit.get(USER_METADATA))
            if cut is not None:
                return cut
        raise TableRefused(
            f"{self._path} is a Delta table whose log does not say which offsets it holds: another"
            " program wrote it, restored it, or the commit is too long ago"
        )

    def columns(self) -> pa.Schema | None:
        return None if self._table is None else pa.schema(self._table.schema().to_arrow())

    def files(self) -> Mapping[str, DataFile]:
        if self._table is None:
            return {}
        actions = pa.table(self._table.get_add_actions(flatten=True)).to_pylist()
        return {
            each["path"]: DataFile(
                path=self._path / each["path"],
                rows=each.get("num_records") or 0,
                size=each["size_bytes"],
            )
            for each in actions
        }

    def begin(self, schema: pa.Schema) -> Place:
        self._path.mkdir(parents=True, exist_ok=True)
        return Place(self._path, schema)

    def commit(self, files: Sequence[DataFile], schema: pa.Schema, cut: Cut) -> None:
        properties = CommitProperties(
            custom_metadata={USER_METADATA: cut.to_json()}, max_commit_retries=0
        )
        try:
            if self._table is None:
                create_table_with_add_actions(
                    str(self._path),
                    _delta_schema(schema),
                    [_added(each) for each in files],
                    commit_properties=properties,
                )
            else:
                self._change(self._table, files, schema, properties)
        except (CommitFailedError, FileExistsError) as error:
            raise TableRefused(
                f"another program wrote {self._path} at the same moment; run the command again"
            ) from error

    def _change(
        self,
        table: DeltaTable,
        files: Sequence[DataFile],
        schema: pa.Schema,
        properties: CommitProperties,
    ) -> None:
        """Commit what differs; with other columns, all."""
        before, after = self.files(), {each.path.name: each for each in files}
        if pa.schema(table.schema().to_arrow()) != schema:
            actions: list[Any] = [_added(each) for each in files]
            mode = "overwrite"
        else:
            actions = [_removed(before[name]) for name in sorted(before.keys() - after.keys())]
            actions += [_added(after[name]) for name in sorted(after.keys() - before.keys())]
            mode = "append"
        table.create_write_transaction(
            actions, mode, _delta_schema(schema), commit_properties=properties
        )

    def discard(self) -> None:
        """Do nothing: a file that no commit names is removed by a VACUUM."""

    def where(self) -> str:
        return str(self._path)

    def _has_only_ours(self) -> bool:
        """Whether an export was interrupted before the first commit."""
        return all(path.name.startswith("part-") for path in self._path.glob("[!.]*"))

    def _refuse_other_layouts(self, table: DeltaTable) -> None:
        """Raise TableRefused if files with just our columns would not be this table's."""
        layouts = sorted(set(table.protocol().reader_features or ()) - KEPT_FEATURES)
        metadata = table.metadata()
        if metadata.configuration.get(COLUMN_MAPPING, "none") != "none":
            layouts.append("column mapping")
        if VALID_TO_OFFSET in table.schema().to_arrow().names:
            layouts.append("a history")
        if metadata.partition_columns:
            layouts.append(f"partitions by {', '.join(metadata.partition_columns)}")
        if layouts:
            raise TableRefused(
                f"{self._path} has {' and '.join(layouts)}, which an export does not write: write to"
                " another path"
            )


def _opened(path: Path) -> DeltaTable | None:
    try:
        return DeltaTable(path)
    except TableNotFoundError:
        return None


def _delta_schema(schema: pa.Schema) -> Schema:
    return Schema.from_arrow(schema)


def _added(file: DataFile) -> AddAction:
    return AddAction(
        path=file.path.name,
        size=file.size,
        partition_values={},
        modification_time=file.path.stat().st_mtime_ns // 1_000_000,
        data_change=True,
        stats=json.dumps({"numRecords": file.rows}),
    )


def _removed(file: DataFile) -> RemoveAction:
    return RemoveAction(file.path.name, True, time.time_ns() // 1_000_000, file.size, {})
