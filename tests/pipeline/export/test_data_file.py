"""A file's name says what rows it has."""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.export.columns.reader import RowReader
from pipeline.export.data_file import PartWriter, row_groups, table_schema
from pipeline.export.last_records import LogPart, parts_of, whole_range
from pipeline.offsets.cut import TableRefused
from pipeline.tables.payload_options import Envelope, OnUnparsable, Payload, PayloadFormat
from pipeline.tables.source_table import NO_PRIMARY_KEY
from storage.files.files import FileSystem
from storage.log.on_disk import LogOnDisk, look_at_log
from tests.harness.compacted_log import CompactedLog, identity
from tests.pipeline.maxwell_transcript import (
    CUSTOMERS,
    JOURNAL,
    OBJECT_KEYS,
    ORDERS,
    payload_of,
    transcript,
)

JSON = Payload(value_format=PayloadFormat.JSON, value_schema="n BIGINT")


def log_of(count: int) -> tuple[FileSystem, LogOnDisk]:
    log = CompactedLog()
    for number in range(count):
        log.append((b"k%d" % number, b'{"n": 7}'))
    found = look_at_log(log.fs, identity())
    assert found is not None
    return log.fs, found


def whole(fs: FileSystem, log: LogOnDisk, *, count: int) -> LogPart:
    (part,) = parts_of(fs, log, np.arange(count))
    return part


def writer_of(payload: Payload) -> PartWriter:
    reader = RowReader(payload)
    return PartWriter(reader, payload, table_schema(reader, payload))


def name_of(payload: Payload, part: LogPart) -> str:
    return writer_of(payload).name(part, identity())


def test_it_is_another_name_whatever_changes_a_row() -> None:
    part = whole(*log_of(3), count=3)
    payloads = [
        JSON,
        Payload(),
        replace(JSON, value_schema="n INT"),
        replace(JSON, key_format=PayloadFormat.STRING),
        replace(JSON, key_column="id"),
        replace(JSON, on_unparsable=OnUnparsable.KEEP),
        replace(JSON, envelope=Envelope.DEBEZIUM),
        replace(JSON, envelope=Envelope.DEBEZIUM, unavailable="?"),
        replace(JSON, envelope=Envelope.MAXWELL, source_table=ORDERS),
        replace(JSON, envelope=Envelope.MAXWELL, source_table=CUSTOMERS),
    ]
    names = {name_of(each, part) for each in payloads}
    names.add(name_of(JSON, part.without(np.array([1]))))
    names.add(writer_of(JSON).name(part, replace(identity(), topic_id=uuid.UUID(int=9))))

    assert len(names) == len(payloads) + 2


def test_it_is_the_same_name_however_the_schema_is_said() -> None:
    part = whole(*log_of(3), count=3)
    assert name_of(JSON, part) == name_of(replace(JSON, value_schema="`n` bigint"), part)


def test_no_file_is_left_of_records_that_delete_or_cannot_be_read(tmp_path: Path) -> None:
    log = CompactedLog()
    log.append((b"a", None))
    log.append((b"b", b"no"))
    found = look_at_log(log.fs, identity())
    assert found is not None
    path = tmp_path / "file.parquet"

    deleted = whole(log.fs, found, count=1)
    assert writer_of(JSON).write(log.fs, deleted, path, lambda count: None).file is None
    with pytest.raises(TableRefused, match="orders-0, offset 1: the value is not json"):
        writer_of(JSON).write(log.fs, whole(log.fs, found, count=2), path, lambda count: None)
    assert list(tmp_path.iterdir()) == []


def test_a_file_has_the_rows_of_the_source_table_only(tmp_path: Path) -> None:
    log = CompactedLog()
    for *_, key, value in transcript(OBJECT_KEYS):
        log.append((key, value))
    found = look_at_log(log.fs, identity())
    assert found is not None
    part, path = whole(log.fs, found, count=len(transcript(OBJECT_KEYS))), tmp_path / "file.parquet"

    written = writer_of(payload_of(CUSTOMERS, value_schema="code STRING, name STRING")).write(
        log.fs, part, path, lambda count: None
    )
    assert written.file is not None
    assert pq.read_table(path).column("name").to_pylist() == ["Ana", "Bo", "Ana Z"]
    with pytest.raises(TableRefused, match=f"orders-0, offset 10: {NO_PRIMARY_KEY}"):
        writer_of(payload_of(JOURNAL)).write(log.fs, part, path, lambda count: None)


def test_a_record_that_a_sidecar_promises_must_be_there(tmp_path: Path) -> None:
    fs, log = log_of(2)
    lying = LogPart(whole_range(log), np.array([0, 1, 2]))

    with pytest.raises(TableRefused, match="1 record missing that a key sidecar names"):
        writer_of(JSON).write(fs, lying, tmp_path / "file", lambda count: None)


def test_progress_ends_with_all_bytes_of_the_part(tmp_path: Path) -> None:
    fs, log = log_of(50)
    part, done = whole(fs, log, count=50), list[int]()
    written = writer_of(JSON).write(fs, part, tmp_path / "file", done.append)

    assert sum(done) == part.size == sum(each.size for each in log.segments)
    assert written.file is not None
    assert pq.read_metadata(tmp_path / "file").num_rows == written.file.rows == 50


def test_tables_are_joined_to_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.export.data_file.ROW_GROUP_ROWS", 5)
    tables = [pa.table({"n": [1, 2]}) for _ in range(4)]

    assert [group.num_rows for group in row_groups(iter(tables))] == [6, 2]
