"""Scratch files: readable as often as needed, invisible to others, gone with their file system."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.files.errors import MissingFile, NoSpace
from storage.files.files import unlink_if_there
from storage.files.local_files import LocalFileSystem
from storage.files.scratch_files import ScratchFileSystem
from tests.harness.faulty_fs import FaultyFileSystem


def test_files_are_written_one_after_the_other_and_read_in_any_order(tmp_path: Path) -> None:
    scratch = ScratchFileSystem(LocalFileSystem(), f"{tmp_path}/scratch")
    first = scratch.open("a", create=True)
    assert first.append((b"one", b"two")) == 0
    assert first.append((b"three",)) == 6
    second = scratch.open("b", create=True)
    second.append((b"four",))

    assert scratch.open("a").read_at(3, 100) == b"twothree"
    assert scratch.open("b").read_at(1, 2) == b"ou"
    assert scratch.open("b").read_at(4, 2) == b""
    assert scratch.size("a") == 11
    scratch.close()


def test_nothing_of_them_has_a_name_and_one_without_a_byte_makes_no_file(tmp_path: Path) -> None:
    scratch = ScratchFileSystem(LocalFileSystem(), f"{tmp_path}/scratch")
    file = scratch.open("a", create=True)
    assert not scratch.open("a").read_at(0, 1)
    (tmp_path / "scratch").write_bytes(b"left by a crash")

    file.append((b"x",))

    assert list(tmp_path.iterdir()) == []
    assert file.read_at(0, 1) == b"x"
    scratch.close()
    assert not scratch.exists("a")


def test_a_file_is_renamed_removed_and_created_again(tmp_path: Path) -> None:
    scratch = ScratchFileSystem(LocalFileSystem(), f"{tmp_path}/scratch")
    scratch.open("a", create=True).append((b"old",))
    scratch.rename("a", "b")
    assert (scratch.exists("a"), scratch.exists("b")) == (False, True)
    scratch.open("b", create=True).append((b"new",))
    assert scratch.open("b").read_at(0, 10) == b"new"

    unlink_if_there(scratch, "b")

    with pytest.raises(MissingFile):
        scratch.open("b")
    scratch.close()


def test_a_full_disk_raises(tmp_path: Path) -> None:
    files = FaultyFileSystem()
    scratch = ScratchFileSystem(files, f"{tmp_path}/scratch")
    files.faults.space = 0

    with pytest.raises(NoSpace):
        scratch.open("a", create=True).append((b"x",))
    scratch.close()
