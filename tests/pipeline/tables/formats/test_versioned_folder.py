from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from pipeline.tables.formats.versioned_folder import VersionedFolder


def write(text: str, folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "part-0.parquet").write_text(text)


def read(table: VersionedFolder) -> str:
    return (table.current / "part-0.parquet").read_text()


def test_a_new_folder_has_no_version_and_no_label(tmp_path: Path) -> None:
    table = VersionedFolder(tmp_path / "table")

    assert not table.current.exists()
    assert table.label() is None


def test_the_last_published_version_and_its_label_are_current(tmp_path: Path) -> None:
    table = VersionedFolder(tmp_path / "table")

    table.publish(lambda folder: write("one", folder), "up to 5")
    table.publish(lambda folder: write("two", folder), "up to 7")

    assert read(table) == "two"
    assert table.label() == "up to 7"


def test_a_version_that_could_not_be_written_leaves_the_one_before(tmp_path: Path) -> None:
    table = VersionedFolder(tmp_path / "table")
    table.publish(lambda folder: write("one", folder), "up to 5")

    def fails_half_way(folder: Path) -> None:
        write("half", folder)
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space"):
        table.publish(fails_half_way, "up to 9")

    assert read(table) == "one"
    assert table.label() == "up to 5"
    table.publish(lambda folder: write("two", folder), "up to 9")
    assert read(table) == "two"


def test_a_crash_just_before_the_switch_leaves_the_version_before(tmp_path: Path) -> None:
    table = VersionedFolder(tmp_path / "table")
    table.publish(lambda folder: write("one", folder), "up to 5")
    write("two", tmp_path / "table" / "v00000002")
    (tmp_path / "table" / ".current.next").symlink_to("v00000002")

    assert read(table) == "one"
    table.publish(lambda folder: write("three", folder), "up to 6")
    assert read(table) == "three"


def test_a_reader_that_resolved_the_link_keeps_its_version_over_one_switch(tmp_path: Path) -> None:
    table = VersionedFolder(tmp_path / "table")
    table.publish(lambda folder: write("one", folder), "")
    held = table.current.resolve()

    table.publish(lambda folder: write("two", folder), "")
    assert (held / "part-0.parquet").read_text() == "one"

    table.publish(lambda folder: write("three", folder), "")
    assert sorted(path.name for path in table.path.glob("v*")) == ["v00000002", "v00000003"]


class Crashed(Exception):
    """The machine stops before a step on the file system."""


def crash_before(patch: pytest.MonkeyPatch, step: int) -> None:
    """Count steps that change the disk; the one with the number `step` and all later ones fail."""
    steps = iter(range(1_000))

    def counted(real: Callable[..., object]) -> Callable[..., object]:
        def run(*arguments: object, **options: object) -> object:
            if next(steps) >= step:
                raise Crashed
            return real(*arguments, **options)

        return run

    for owner, name in [
        (Path, "mkdir"), (Path, "write_text"), (Path, "unlink"), (Path, "symlink_to"),
        (Path, "replace"), (os, "fsync"), (shutil, "rmtree"),
    ]:  # fmt: skip
        patch.setattr(owner, name, counted(getattr(owner, name)))


def test_a_crash_before_any_step_leaves_a_whole_version_and_the_next_one_can_be_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crashes = 0
    for step in range(100):
        table = VersionedFolder(tmp_path / str(step))
        for text in ("one", "two", "three"):
            table.publish(partial(write, text), text)
        try:
            with monkeypatch.context() as patch:
                crash_before(patch, step)
                table.publish(lambda folder: write("four", folder), "four")
        except Crashed:
            crashes += 1
        else:
            break
        assert read(table) == table.label()
        assert read(table) in ("three", "four")
        table.publish(lambda folder: write("five", folder), "five")
        assert (read(table), table.label()) == ("five", "five")
    assert crashes > 8
