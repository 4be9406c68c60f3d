"""A file system that only counts bytes."""

from __future__ import annotations

import pytest

from storage.files.errors import MissingFile
from storage.files.null_files import NullFileSystem


def test_what_is_written_is_counted_and_forgotten() -> None:
    fs = NullFileSystem()
    file = fs.open("x", create=True)

    assert file.append((b"abc", b"de")) == 0
    assert file.append((b"f",)) == 5
    assert file.size == 6
    file.truncate(4)
    assert file.size == 4
    assert not fs.exists("x")
    assert fs.list("/") == []


def test_nothing_can_be_read() -> None:
    fs = NullFileSystem()

    with pytest.raises(MissingFile):
        fs.open("x")
    with pytest.raises(MissingFile):
        fs.read_bytes("x")
    with pytest.raises(MissingFile):
        fs.open("x", create=True).read_at(0, 1)
