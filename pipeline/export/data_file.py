"""One Parquet file of a table: the rows of a part of a log.

    the key and the columns of the value | _unparsed, if asked for | _topic _partition _offset _timestamp

These are the columns that the jobs on Spark write (`pipeline/tables/payload.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash

from pipeline.export.columns.key_identity import identity_of
from pipeline.export.columns.reader import Refused, RowReader, RowsRead
from pipeline.export.columns.table_records import NoRowKey, rows_of_table
from pipeline.export.equal_keys import KeyPlaces
from pipeline.export.last_records import LogPart, last_records
from pipeline.offsets.cut import TableRefused
from pipeline.tables.formats.column_names import ORIGIN, UNPARSED
from pipeline.tables.formats.versioned_folder import sync_file
from pipeline.tables.payload_options import (
    HAS_NO_FIELDS,
    Encoding,
    OnUnparsable,
    Payload,
    PayloadFormat,
)
from storage.files.files import FileSystem
from storage.formats.log_identity import LogIdentity

FORMAT = 1
"""Changes when the same records give other rows."""
ROW_GROUP_ROWS = 1 << 20
ROW_GROUP_BYTES = 64 << 20
"""A row group ends when it has so many rows or bytes, before compression. It is held in memory."""
COMPRESSION = "zstd"
KEYS_READ = 1 << 16
"""So many keys of a file are read at once."""
ORIGIN_TYPES = (pa.string(), pa.int32(), pa.int64(), pa.timestamp("us", tz="UTC"))
UNFINISHED = ".unfinished"
"""The end of a file's name while it is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """A complete data file."""

    path: Path
    """Never used twice: an earlier version of a table may still name a file, with its size."""
    rows: int
    size: int

    @property
    def name(self) -> str:
        """The name of its rows, if an export has written it (`PartWriter.name`)."""
        return self.path.name.rpartition("-")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenPart:
    """What came of a part."""

    file: DataFile | None
    """None if no row is left of it."""
    keys: KeyPlaces | None
    """Where its keys are, if keys with other bytes may be equal to them."""


class PartWriter:
    """Writes parts as data files. Several threads may share it."""

    def __init__(self, reader: RowReader, payload: Payload, in_files: pa.Schema) -> None:
        """
        Args:
            in_files: `table_schema`, with the names, types and metadata that the table's files need.
        """
        self._reader = reader
        self._keeps = payload.on_unparsable is OnUnparsable.KEEP
        self._schema, self._in_files = table_schema(reader, payload), in_files
        self.keys_are_bytes = payload.key_format in HAS_NO_FIELDS
        """Whether two keys are equal exactly if their bytes are."""
        self._payload = payload
        self._meaning = meaning_of(payload, in_files)

    def name(self, part: LogPart, identity: LogIdentity) -> str:
        """Returns the name of a part's rows: the beginning of its file's. Equal names: equal rows."""
        digest = xxhash.xxh3_128()
        digest.update(self._meaning)
        digest.update(identity.topic_id.bytes)
        digest.update(part.last.tobytes())
        where = f"{part.range.partition:05d}-{part.range.first_offset:020d}"
        return f"part-{where}-{digest.hexdigest()}"

    def write(
        self, fs: FileSystem, part: LogPart, path: Path, progress: Callable[[int], None]
    ) -> WrittenPart:
        """Write a part's rows to a file with a new name, synced. Without any row there is no file.

        Args:
            progress: gets the bytes of segments that are done.

        Raises:
            TableRefused: a key or a value cannot be read; the message has the offset.
            CorruptLog, DiskError: see `last_records`.
            OSError: the file cannot be written.
        """
        keys = KeyPlaces()
        unfinished = path.with_name(path.name + UNFINISHED)
        try:
            rows = self._write(self._tables(fs, part, keys, progress), unfinished)
            if rows:
                sync_file(unfinished)
                unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
        file = DataFile(path=path, rows=rows, size=path.stat().st_size) if rows else None
        return WrittenPart(file=file, keys=keys if keys.count else None)

    def holds(self, file: DataFile, part: LogPart) -> bool:
        """Returns whether a file by a part's name can stay, and its keys can be compared with others'.

        Keys that are records may be equal in other bytes. The file lacks those of records that delete.
        """
        return self.keys_are_bytes or file.rows == len(part.last)

    def keys_in(self, file: DataFile) -> KeyPlaces:
        """Returns where the keys of a file are, as `write` does for a new one. Raises OSError."""
        keys = KeyPlaces()
        if not self.keys_are_bytes:
            names = [self._payload.key_column, "_offset"]
            with pq.ParquetFile(file.path) as opened:
                for rows in opened.iter_batches(KEYS_READ, columns=names):
                    keys.add(identity_of(rows.column(names[0])), rows.column(names[1]))
        return keys

    def _write(self, tables: Iterator[pa.Table], path: Path) -> int:
        """Returns the number of rows."""
        rows = 0
        with pq.ParquetWriter(path, self._in_files, compression=COMPRESSION) as writer:
            for group in row_groups(tables):
                named = group.rename_columns(self._in_files.names)
                writer.write_table(named.cast(self._in_files), row_group_size=ROW_GROUP_ROWS)
                rows += group.num_rows
        return rows

    def _tables(
        self, fs: FileSystem, part: LogPart, keys: KeyPlaces, progress: Callable[[int], None]
    ) -> Iterator[pa.Table]:
        done, size = 0, part.size
        span = part.range.end_offset - part.range.first_offset
        for records in last_records(fs, part):
            yield self._table(part, records, keys)
            reached = records.column("offset")[-1].as_py() + 1 - part.range.first_offset
            progress(size * reached // span - done)
            done = size * reached // span
        progress(size - done)

    def _table(self, part: LogPart, records: pa.RecordBatch, keys: KeyPlaces) -> pa.Table:
        records = self._of_source_table(part, records)
        try:
            read = self._reader.read(records.column("key"), records.column("value"))
        except TableRefused as error:
            raise TableRefused(f"{_place(part, records, 0)} or later: {error}") from error
        refuse(part, records, read, keeps=self._keeps)
        if read.key_identity is not None:
            keys.add(read.key_identity, records.column("offset"))
        columns = list(read.columns.columns)
        if self._keeps:
            columns.append(unparsed(records.column("value"), read.refused))
        columns += origin(part, records)
        table = pa.Table.from_arrays(columns, schema=self._schema)
        return table if not read.deletes.any() else table.filter(pa.array(~read.deletes))

    def _of_source_table(self, part: LogPart, records: pa.RecordBatch) -> pa.RecordBatch:
        """Returns the records of the user's `--source-table`; all without it. Raises TableRefused."""
        table = self._payload.source_table
        if table is None:
            return records
        try:
            return records.take(
                rows_of_table(records.column("key"), records.column("value"), table)
            )
        except NoRowKey as error:
            raise TableRefused(f"{_place(part, records, error.row)}: {error}") from error


def new_path(folder: Path, name: str) -> Path:
    """Returns the path of a new file for the rows of this name."""
    return folder / f"{name}-{token_hex(4)}.parquet"


def table_schema(reader: RowReader, payload: Payload) -> pa.Schema:
    """Returns the columns of a table."""
    keeps = payload.on_unparsable is OnUnparsable.KEEP
    kept = [pa.field(UNPARSED, pa.binary())] if keeps else []
    return pa.schema([*reader.schema, *kept, *map(pa.field, ORIGIN, ORIGIN_TYPES)])


def meaning_of(payload: Payload, schema: pa.Schema) -> bytes:
    """Returns bytes that differ if the same records may give other rows."""
    said = (
        FORMAT,
        *(meaning_of_part(each) for each in (payload.value, payload.key)),
        *(payload.envelope, payload.unavailable, payload.confluent_header),
        payload.registry is not None,
        payload.on_unparsable,
        payload.source_table,
    )
    return repr(said).encode() + bytes(schema.serialize())


def meaning_of_part(encoding: Encoding) -> tuple[object, ...]:
    """Returns how keys or values are read, beside the columns that they become.

    The schema of JSON says nothing else. That of Avro has defaults, too.
    """
    schema = encoding.schema if encoding.format is PayloadFormat.AVRO else None
    return encoding.format, schema, encoding.message, encoding.schema_ids


def row_groups(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Yields the tables joined to row groups."""
    held: list[pa.Table] = []
    rows = size = 0
    for table in tables:
        held.append(table)
        rows, size = rows + table.num_rows, size + table.nbytes
        if rows >= ROW_GROUP_ROWS or size >= ROW_GROUP_BYTES:
            yield pa.concat_tables(held)
            held, rows, size = [], 0, 0
    if rows:
        yield pa.concat_tables(held)


def refuse(part: LogPart, records: pa.RecordBatch, read: RowsRead, *, keeps: bool) -> None:
    """Raise TableRefused at the first record that cannot be read and may not be kept so."""
    for each in read.refused:
        if each.is_key or not keeps:
            raise TableRefused(f"{_place(part, records, each.row)}: {each.reason}")


def _place(part: LogPart, records: pa.RecordBatch, row: int) -> str:
    offset = records.column("offset")[row]
    return f"{part.range.topic}-{part.range.partition}, offset {offset}"


def unparsed(values: pa.Array, refused: tuple[Refused, ...]) -> pa.Array:
    """Returns the values that cannot be read, and nulls for all others."""
    are_refused = np.zeros(len(values), bool)
    are_refused[[each.row for each in refused]] = True
    return pc.if_else(pa.array(are_refused), values, pa.scalar(None, pa.binary()))


def origin(part: LogPart, records: pa.RecordBatch) -> list[pa.Array]:
    """Returns the columns that say which record a row comes from."""
    count = len(records)
    return [
        pa.repeat(pa.scalar(part.range.topic), count),
        pa.repeat(pa.scalar(part.range.partition, pa.int32()), count),
        records.column("offset"),
        records.column("timestamp"),
    ]
