"""A log of the in-memory disk, put on the real one and exported; and the rows of a table, read back."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from pipeline.export.delta_target import DeltaTarget
from pipeline.export.export import Summary, export
from pipeline.export.iceberg_target import IcebergTarget
from pipeline.export.log_export import ExportProgress, Reading
from pipeline.export.parquet_target import ParquetTarget
from pipeline.export.target import Target
from pipeline.tables.formats.column_names import TOPIC_PARTITION
from pipeline.tables.payload_options import OnMissingKey, Payload
from storage.formats.compaction_strategy import BY_OFFSET, CompactionStrategy
from storage.formats.log_identity import LogIdentity
from tests.harness.compacted_log import CompactedLog, identity

Rows: TypeAlias = dict[tuple[int, Any], tuple[int, Any]]
"""(Partition, key) -> (offset, value)."""
FORMATS = ("parquet", "delta", "iceberg")
CATALOG, NAME = "test", "shop.orders"


def on_disk(log: CompactedLog, folder: Path) -> LogIdentity:
    """Write the log's files below a folder. Returns its identity there."""
    source = log.log.identity
    target = folder / source.directory
    if target.exists():
        for path in target.iterdir():
            path.unlink()
    target.mkdir(parents=True, exist_ok=True)
    for name in log.fs.list(source.directory):
        (target / name).write_bytes(log.fs.read_bytes(f"{source.directory}/{name}"))
    return identity(directory=str(target))


def catalog_properties(folder: Path) -> Mapping[str, str]:
    return {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}


def target_of(kind: str, folder: Path) -> Target:
    """Returns the table of a format in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    match kind:
        case "parquet":
            return ParquetTarget(str(folder / "parquet"))
        case "delta":
            return DeltaTarget(str(folder / "delta"))
        case _:
            return IcebergTarget(NAME, CATALOG, catalog_properties(folder))


def export_to(
    target: Target,
    *logs: LogIdentity,
    payload: Payload | None = None,
    part_bytes: int = 1 << 27,
    strategy: CompactionStrategy = BY_OFFSET,
    memory_bytes: int = 1 << 20,
) -> Summary:
    payload = payload or Payload(on_missing_key=OnMissingKey.SKIP)
    reading = Reading(
        strategy=strategy,
        on_missing_key=payload.on_missing_key,
        memory_bytes=memory_bytes,
        threads=2,
        part_bytes=part_bytes,
    )
    return export(logs, reading, target, payload, ExportProgress())


def table_in(kind: str, folder: Path) -> pa.Table:
    """Returns the whole table, as an independent reader reads it."""
    match kind:
        case "parquet":
            current = (folder / "parquet" / "current").resolve()
            return ds.dataset(sorted(map(str, current.glob("*.parquet")))).to_table()
        case "delta":
            return pa.table(DeltaTable(folder / "delta").to_pyarrow_dataset().to_table())
        case _:
            return (
                load_catalog(CATALOG, **catalog_properties(folder))
                .load_table(NAME)
                .scan()
                .to_arrow()
            )


def partition_column(kind: str) -> str:
    return TOPIC_PARTITION if kind == "iceberg" else "_partition"


def rows_in(kind: str, folder: Path, *, value: str = "value") -> Rows:
    rows = table_in(kind, folder).to_pylist()
    partition = partition_column(kind)
    found = {(row[partition], row["key"]): (row["_offset"], row[value]) for row in rows}
    assert len(found) == len(rows), "a key has two rows"
    return found
