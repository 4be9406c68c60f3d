"""Measures the disk and the page cache with the least I/O that a cleaning pass must do."""

from __future__ import annotations

import os
import time
from pathlib import Path

from storage.files.local_files import LocalFileSystem
from storage.log.cleaning_view import READ_AHEAD_BYTES, window_ahead
from storage.segment.cleaned_segment import WRITE_BACK_BEHIND_BYTES, WRITE_BACK_BYTES

CHUNK_BYTES = 1 << 20


def segment_files(log: Path) -> list[Path]:
    """Returns the segments of a log, oldest first."""
    return sorted(log.glob("*.log"))


def size_of(log: Path) -> int:
    """Returns the bytes in a log's segments."""
    return sum(path.stat().st_size for path in segment_files(log))


def drop_from_cache(log: Path) -> None:
    """Drop a log's synced files from the page cache, so that the next read comes from the disk."""
    for path in log.iterdir():
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fdatasync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def read_and_write(log: Path, survivor_bytes: int, *, reads: int = 2) -> float:
    """Returns the seconds to read a log `reads` times and to write and sync the survivors."""
    started = time.perf_counter()
    for path in segment_files(log) * reads:
        _read(path)
    target = log.with_name("probe")
    _write(target, survivor_bytes)
    seconds = time.perf_counter() - started
    target.unlink()
    return seconds


def _read(path: Path) -> None:
    """Read in chunks, while the disk reads ahead."""
    file, chunk = LocalFileSystem().open(str(path)), memoryview(bytearray(CHUNK_BYTES))
    for position in range(0, file.size, CHUNK_BYTES):
        ahead = window_ahead(position, position + file.read_into(position, chunk))
        if ahead is not None:
            file.read_ahead(ahead, READ_AHEAD_BYTES)
    file.close()


def _write(target: Path, size: int) -> None:
    """Write in chunks, while the disk writes back; that is faster than syncing each chunk."""
    file, chunk = LocalFileSystem().open(str(target), create=True), os.urandom(CHUNK_BYTES)
    for position in range(0, size, CHUNK_BYTES):
        file.append((chunk,))
        file.begin_write_back(position, CHUNK_BYTES)
        oldest = position - WRITE_BACK_BEHIND_BYTES
        if oldest >= 0:
            file.end_write_back(oldest, WRITE_BACK_BYTES)
    file.sync()
    file.close()
