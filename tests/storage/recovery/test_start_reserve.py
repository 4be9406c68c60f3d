"""The disk space that a log directory reserves for its next start."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.files.local_files import LocalFileSystem
from storage.recovery.start_reserve import (
    FREE_BYTES_MIN,
    RESERVE_BYTES,
    keep_reserve,
    release_reserve,
)
from tests.harness.memory_fs import MemoryFileSystem


def disk_with(space: int) -> MemoryFileSystem:
    disk = MemoryFileSystem()
    disk.make_directory("/data")
    disk.faults.space = space
    return disk


def test_a_reserve_takes_space_and_no_bytes(tmp_path: Path) -> None:
    for _ in range(2):
        keep_reserve(LocalFileSystem(), str(tmp_path))

    found = (tmp_path / ".reserve").stat()
    assert (found.st_size, found.st_blocks * 512) == (0, RESERVE_BYTES)


def test_a_start_on_a_full_disk_has_the_reserve_and_one_with_space_leaves_it() -> None:
    disk = disk_with(FREE_BYTES_MIN)
    keep_reserve(disk, "/data")
    release_reserve(disk, "/data")
    assert disk.exists("/data/.reserve")

    disk.faults.space = 0
    release_reserve(disk, "/data")
    assert disk.faults.space == RESERVE_BYTES


@pytest.mark.parametrize("space", [0, RESERVE_BYTES, FREE_BYTES_MIN - 1])
def test_nothing_is_reserved_while_there_is_little_space(space: int) -> None:
    disk = disk_with(space)
    keep_reserve(disk, "/data")
    assert not disk.exists("/data/.reserve")
