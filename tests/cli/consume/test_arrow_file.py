"""`kompakt consume --latest --arrow`: what is written is read back by Arrow, or nothing has changed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.base.command_end import CommandFailed
from cli.consume import arrow_file
from cli.consume.arrow_file import batched, check_arrow, write_arrow
from cli.consume.latest_records import LatestRecord

RECORDS = st.lists(
    st.builds(
        LatestRecord,
        st.integers(0, 9),
        st.binary(max_size=4),
        st.integers(0, 1 << 40),
        st.integers(0, 1 << 40),
        st.binary(max_size=40),
        st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3))).map(tuple),
    ),
    max_size=9,
)


def record(offset: int, *, timestamp: int = 1000) -> LatestRecord:
    return LatestRecord(0, b"k%d" % offset, offset, timestamp, b"v", (("h", None),))


def read(path: Path) -> pa.Table:
    with pa.ipc.open_file(path) as file:
        return file.read_all()


@given(records=RECORDS)
def test_what_is_written_is_read_back(
    records: list[LatestRecord], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("arrow") / "table.arrow"

    write_arrow(path, records, topic="accounts", strategy="offset")

    table = read(path)
    rows = table.cast(table.schema.set(2, pa.field("timestamp", pa.int64()))).to_pylist()
    assert [
        LatestRecord(
            row["partition"],
            row["key"],
            row["offset"],
            row["timestamp"],
            row["value"],
            tuple((each["name"], each["value"]) for each in row["headers"]),
        )
        for row in rows
    ] == records
    assert table.schema.metadata == {b"kompakt.topic": b"accounts", b"kompakt.strategy": b"offset"}


def test_the_columns_are_these(tmp_path: Path) -> None:
    write_arrow(tmp_path / "t", [record(1, timestamp=-1)], topic="t", strategy="offset")

    table = read(tmp_path / "t")
    assert [f"{field.name}: {field.type}" for field in table.schema] == [
        "partition: int32",
        "offset: int64",
        "timestamp: timestamp[ms, tz=UTC]",
        "key: binary",
        "value: binary",
        "headers: list<item: struct<name: string, value: binary>>",
    ]
    assert table["timestamp"].to_pylist() == [None], "a record may have no timestamp"


def test_rows_are_written_in_bounded_batches() -> None:
    records = [record(offset) for offset in range(5)]

    assert [len(each) for each in batched(records, rows_max=2)] == [2, 2, 1]
    assert [len(each) for each in batched(records, bytes_max=5)] == [2, 2, 1]
    assert list(batched([])) == []


def test_an_export_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "table.arrow"
    write_arrow(path, [record(1)], topic="t", strategy="offset")

    def disk_full() -> Iterator[LatestRecord]:
        yield record(2)
        raise OSError(28, "No space left on device")

    with pytest.raises(CommandFailed, match=r"cannot write .*table.arrow: No space left"):
        write_arrow(path, disk_full(), topic="t", strategy="offset")

    assert read(path)["offset"].to_pylist() == [1]
    assert [each.name for each in tmp_path.iterdir()] == ["table.arrow"]


def test_without_pyarrow_the_command_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    check_arrow()
    monkeypatch.setattr(arrow_file, "find_spec", lambda _name: None)
    with pytest.raises(CommandFailed, match=r"--arrow needs pyarrow: .* -m pip install"):
        check_arrow()
