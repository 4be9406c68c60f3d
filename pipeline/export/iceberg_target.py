"""An Iceberg table in a catalog, by pyiceberg.

A commit is one snapshot, which adds the new files and drops those that the table no longer has. Its
summary has the offsets, in `kompakt.offsets`. Snapshots that others make may lie above ours, such as
those of a compaction: the table's offsets are those of the newest one that has any.

Spark cannot merge into a table with a column `_partition` (see `tables/formats/iceberg_table.py`), so
the partition of the topic is called `_topic_partition`.

Data files have the ids of the table's columns, so that a column may get another type: it is then another
column of that name, and earlier snapshots stay readable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote, urlparse

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchTableError,
    TableAlreadyExistsError,
    ValidationException,
)
from pyiceberg.io.pyarrow import parquet_file_to_data_file, schema_to_pyarrow
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.table import Table, Transaction

from pipeline.export.data_file import DataFile
from pipeline.export.target import Place
from pipeline.offsets.cut import Cut, TableRefused
from pipeline.tables.formats.column_names import TOPIC_PARTITION

OFFSETS = "kompakt.offsets"
PARTITION = "_partition"
CHANGED = (CommitFailedException, ValidationException, TableAlreadyExistsError)
"""What a commit raises if another one came in between."""


class IcebergTarget:
    """A table by its name in a catalog; its location is on a local file system."""

    def __init__(self, name: str, catalog: str, properties: Mapping[str, str]) -> None:
        """Open it.

        Args:
            name: `NAMESPACE.TABLE`.
            catalog: the catalog's name in pyiceberg's configuration.
            properties: of the catalog, over those of the configuration.

        Raises:
            TableRefused: the catalog cannot be loaded, or the name has no namespace.
        """
        self._name = name
        if "." not in name:
            raise TableRefused(f"{name}: a table in Iceberg is named NAMESPACE.TABLE")
        try:
            self._catalog: Catalog = load_catalog(catalog, **properties)
            self._table = self._opened()
        except Exception as error:
            raise TableRefused(f"the catalog {catalog} cannot be used: {error}") from error
        self._transaction: Transaction | None = None

    def held(self) -> Cut | None:
        if self._table is None or self._table.current_snapshot() is None:
            return None
        snapshot = self._table.current_snapshot()
        while snapshot is not None:
            summary = snapshot.summary
            cut = Cut.from_json(summary.get(OFFSETS)) if summary is not None else None
            if cut is not None:
                return cut
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else self._table.snapshot_by_id(parent)
        raise TableRefused(
            f"{self._name} has no snapshot that says which offsets it holds: another program wrote it"
        )

    def columns(self) -> pa.Schema | None:
        if self._table is None:
            return None
        return _renamed(_plain(schema_to_pyarrow(self._table.schema())), TOPIC_PARTITION, PARTITION)

    def files(self) -> Mapping[str, DataFile]:
        return {
            Path(path).name: DataFile(
                path=Path(path), rows=each.record_count, size=each.file_size_in_bytes
            )
            for path, each in self._data_files(with_deletes=False).items()
        }

    def begin(self, schema: pa.Schema) -> Place:
        schema = _renamed(schema, PARTITION, TOPIC_PARTITION)
        if self._table is None:
            self._catalog.create_namespace_if_not_exists(self._name.rpartition(".")[0])
            columns = _plain(schema)
            transaction: Transaction = self._catalog.create_table_transaction(self._name, columns)
        else:
            if not self._table.spec().is_unpartitioned():
                raise TableRefused(
                    f"{self._name} is partitioned, and an export does not write partitions: write to"
                    " another table"
                )
            transaction = self._table.transaction()
            _set_columns(transaction, _plain(schema))
        self._transaction = transaction
        metadata = transaction.table_metadata
        folder = _local(metadata.location) / "data"
        folder.mkdir(parents=True, exist_ok=True)
        with_ids = schema_to_pyarrow(metadata.schema())
        return Place(folder, pa.schema([with_ids.field(name) for name in schema.names]))

    def commit(self, files: Sequence[DataFile], schema: pa.Schema, cut: Cut) -> None:
        transaction = self._transaction
        assert transaction is not None, "an export has begun"
        try:
            self._change(transaction, files, cut)
            transaction.commit_transaction()
        except CHANGED as error:
            raise TableRefused(
                f"another program wrote {self._name} at the same moment; run the command again"
            ) from error

    def discard(self) -> None:
        """Do nothing: nothing is in the catalog before the commit."""

    def where(self) -> str:
        return self._name

    def _change(self, transaction: Transaction, files: Sequence[DataFile], cut: Cut) -> None:
        after = {str(each.path) for each in files}
        kept = self._data_files(with_deletes=False).keys() & after
        update = transaction.update_snapshot({OFFSETS: cut.to_json()}).overwrite()
        with update:
            for path, dropped in self._data_files(with_deletes=True).items():
                if path not in kept:
                    update.delete_data_file(dropped)
            for path in sorted(after - kept):
                io, metadata = transaction._table.io, transaction.table_metadata
                update.append_data_file(parquet_file_to_data_file(io, metadata, f"file://{path}"))

    def _data_files(self, *, with_deletes: bool) -> dict[str, IcebergFile]:
        """Returns the current data files by their paths, with or without those that have deletes."""
        if self._table is None or self._table.current_snapshot() is None:
            return {}
        return {
            str(_local(task.file.file_path)): task.file
            for task in self._table.scan().plan_files()
            if with_deletes or not task.delete_files
        }

    def _opened(self) -> Table | None:
        try:
            return self._catalog.load_table(self._name)
        except NoSuchTableError:
            return None


def _set_columns(transaction: Transaction, schema: pa.Schema) -> None:
    """Give the table these columns. One that gets another type is dropped and made again."""
    before = _plain(schema_to_pyarrow(transaction.table_metadata.schema()))
    kept = [
        field
        for field in before
        if field.name in schema.names and field == schema.field(field.name)
    ]
    dropped = [field.name for field in before if field not in kept]
    if dropped:
        with transaction.update_schema(allow_incompatible_changes=True) as update:
            for name in dropped:
                update.delete_column(name)
    if len(kept) < len(schema):
        with transaction.update_schema() as update:
            update.union_by_name(schema)


def _renamed(schema: pa.Schema, name: str, to: str) -> pa.Schema:
    """Returns the columns with another name for one of them."""
    return pa.schema([each.with_name(to) if each.name == name else each for each in schema])


def _plain(schema: pa.Schema) -> pa.Schema:
    """Returns columns with the types that Iceberg has, without ids, so that they can be compared."""
    return pa.schema([pa.field(each.name, _plain_type(each.type)) for each in schema])


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, _plain_type(each.type)) for each in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_plain_type(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_plain_type(kind.key_type), _plain_type(kind.item_type))
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    return pa.int32() if kind in (pa.int8(), pa.int16()) else kind


def _local(location: str) -> Path:
    """Returns the path of a location. Raises TableRefused: it is not on a local file system."""
    parsed = urlparse(location)
    if parsed.scheme not in ("", "file"):
        raise TableRefused(f"{location}: an export writes to a local file system only")
    return Path(unquote(parsed.path) if parsed.scheme else location)
