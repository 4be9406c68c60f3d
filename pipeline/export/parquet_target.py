"""A folder of Parquet files, as the jobs on Spark have it (`pipeline/tables/formats/parquet_table.py`).

Files that did not change get a second name (a hard link) in the folder of the next version.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.export.data_file import DataFile
from pipeline.export.target import Place, spark_schema
from pipeline.offsets.cut import Cut, TableRefused
from pipeline.tables.formats.versioned_folder import VersionedFolder


class ParquetTarget:
    """The table at `path`, on a local file system."""

    def __init__(self, path: str) -> None:
        """Open it. Raises TableRefused: the path is not on a local file system."""
        if "://" in path:
            raise TableRefused(f"{path}: a Parquet table lies on a local file system")
        self._folder = VersionedFolder(Path(path.removeprefix("file:")))
        self._label = self._folder.label()
        self._current = self._folder.current.resolve()
        self._version: Path | None = None

    def held(self) -> Cut | None:
        cut = Cut.from_json(self._label)
        if cut is None and not self._folder.is_vacant():
            raise TableRefused(f"{self._folder.path} holds other data than one of our tables")
        return cut

    def columns(self) -> pa.Schema | None:
        first = next(iter(self._parquet_files()), None)
        return None if first is None else pq.read_schema(first)

    def files(self) -> Mapping[str, DataFile]:
        return {
            path.name: DataFile(
                path=path, rows=pq.read_metadata(path).num_rows, size=path.stat().st_size
            )
            for path in self._parquet_files()
        }

    def begin(self, schema: pa.Schema) -> Place:
        version = self._folder.next_version()
        try:
            version.mkdir(parents=True)
        except FileExistsError as error:
            raise TableRefused(f"another program is writing {self._folder.path}") from error
        self._version = version
        return Place(version, schema)

    def commit(self, files: Sequence[DataFile], schema: pa.Schema, cut: Cut) -> None:
        version = self._version
        assert version is not None, "an export has begun"
        for each in files:
            if each.path.parent != version:
                _link_or_copy(each.path, version / each.path.name)
        if self._folder.label() != self._label:
            raise TableRefused(
                f"another program wrote {self._folder.path} at the same moment; run the command again"
            )
        label = json.loads(cut.to_json()) | {"columns": spark_schema(schema)}
        self._folder.switch_to(version, json.dumps(label))

    def discard(self) -> None:
        if self._version is not None:
            shutil.rmtree(self._version, ignore_errors=True)

    def where(self) -> str:
        return str(self._folder.current)

    def _parquet_files(self) -> list[Path]:
        return sorted(self._current.glob("*.parquet")) if self._label is not None else []


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)  # The file system has no hard links.
