"""A standby's directory: one process, one cluster, and never a broker's."""

from __future__ import annotations

import pytest

from cli.standby.directory import PROPERTIES, open_directory
from storage.files.errors import (
    DamagedFile,
    DirectoryLocked,
    ForeignDirectory,
    FormatFromTheFuture,
)
from tests.harness.memory_fs import MemoryFileSystem

DIR = "/copy"
FILE = f"{DIR}/{PROPERTIES}"


def test_a_new_directory_gets_an_id_that_stays() -> None:
    disk = MemoryFileSystem()
    opened = open_directory(disk, DIR)
    opened.close()
    again = open_directory(disk, DIR)
    assert again.directory_id == opened.directory_id
    assert again.cluster_id is None
    assert disk.exists(again.metadata_path)


def test_it_follows_one_cluster_for_ever() -> None:
    disk = MemoryFileSystem()
    opened = open_directory(disk, DIR)
    opened.join_cluster("one")
    opened.join_cluster("one")
    opened.close()
    again = open_directory(disk, DIR)
    assert again.cluster_id == "one"
    with pytest.raises(ForeignDirectory, match="follows cluster one, and the leader is of"):
        again.join_cluster("two")
    assert again.cluster_id == "one"


def test_a_second_process_is_refused() -> None:
    disk = MemoryFileSystem()
    open_directory(disk, DIR)
    with pytest.raises(DirectoryLocked):
        open_directory(disk, DIR)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("meta.properties", "is a broker's data directory: give another --data"),
        ("letters.txt", r"is no standby's directory, and it is not empty \(letters.txt\)"),
    ],
)
def test_a_directory_of_others_is_refused_and_left_alone(name: str, text: str) -> None:
    disk = MemoryFileSystem()
    disk.make_directory(DIR)
    disk.write_bytes(f"{DIR}/{name}", b"x")
    with pytest.raises(ForeignDirectory, match=text):
        open_directory(disk, DIR)
    assert disk.list(DIR) == [name]


def test_a_copy_without_its_properties_is_refused() -> None:
    disk = MemoryFileSystem()
    opened = open_directory(disk, DIR)
    opened.close()
    disk.write_bytes(f"{opened.metadata_path}/1.replog", b"x")
    disk.unlink(FILE)
    with pytest.raises(ForeignDirectory, match=f"{PROPERTIES} is missing"):
        open_directory(disk, DIR)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("version=2\ndirectory.id=0\n", FormatFromTheFuture),
        ("version=1\n", DamagedFile),
        ("version=one\n", DamagedFile),
        ("version=1\ndirectory.id=none\n", DamagedFile),
        ("", DamagedFile),
    ],
)
def test_properties_that_cannot_be_read_are_refused(text: str, error: type[Exception]) -> None:
    disk = MemoryFileSystem()
    open_directory(disk, DIR).close()
    disk.write_bytes(FILE, text.encode())
    with pytest.raises(error):
        open_directory(disk, DIR)
    assert disk.read_bytes(FILE) == text.encode()
    disk.lock(f"{DIR}/.lock").release()
