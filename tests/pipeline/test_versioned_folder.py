from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.versioned_table import VersionedTable


def write(text: str, folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "part-0.parquet").write_text(text)


def read(table: VersionedTable) -> str:
    return (table.current / "part-0.parquet").read_text()


def test_a_new_table_has_no_version_and_no_progress(tmp_path: Path) -> None:
    table = VersionedTable(tmp_path / "table")

    assert not table.current.exists()
    assert table.progress() == {}


def test_the_last_published_version_and_its_progress_are_current(tmp_path: Path) -> None:
    table = VersionedTable(tmp_path / "table")

    table.publish(lambda folder: write("one", folder), {0: 5})
    table.publish(lambda folder: write("two", folder), {0: 7, 11: 3})

    assert read(table) == "two"
    assert table.progress() == {0: 7, 11: 3}


def test_a_version_that_could_not_be_written_leaves_the_one_before(tmp_path: Path) -> None:
    table = VersionedTable(tmp_path / "table")
    table.publish(lambda folder: write("one", folder), {0: 5})

    def fails_half_way(folder: Path) -> None:
        write("half", folder)
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space"):
        table.publish(fails_half_way, {0: 9})

    assert read(table) == "one"
    assert table.progress() == {0: 5}
    table.publish(lambda folder: write("two", folder), {0: 9})
    assert read(table) == "two"


def test_a_crash_just_before_the_switch_leaves_the_version_before(tmp_path: Path) -> None:
    table = VersionedTable(tmp_path / "table")
    table.publish(lambda folder: write("one", folder), {0: 5})
    write("two", tmp_path / "table" / "v00000002")
    (tmp_path / "table" / ".current.next").symlink_to("v00000002")

    assert read(table) == "one"
    table.publish(lambda folder: write("three", folder), {0: 6})
    assert read(table) == "three"


def test_a_reader_that_resolved_the_link_keeps_its_version_over_one_switch(tmp_path: Path) -> None:
    table = VersionedTable(tmp_path / "table")
    table.publish(lambda folder: write("one", folder), {})
    held = table.current.resolve()

    table.publish(lambda folder: write("two", folder), {})
    assert (held / "part-0.parquet").read_text() == "one"

    table.publish(lambda folder: write("three", folder), {})
    assert sorted(path.name for path in table.path.glob("v*")) == ["v00000002", "v00000003"]
