"""Real files that appear not to be in the page cache until a thread has read them."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from storage.files.errors import NotCached
from storage.files.local_files import LocalFile, LocalFileSystem


class ColdFile(LocalFile):
    """A file whose non-blocking reads fail while it is cold."""

    __slots__ = ("_fs",)

    def __init__(self, file: LocalFile, fs: ColdFileSystem) -> None:
        """Take over `file` and its descriptor."""
        super().__init__(file.path, file.fileno(), file.size)
        self._fs = fs

    def read_cached(self, position: int, size: int) -> bytes | bytearray:
        if self.path in self._fs.cold:
            raise NotCached(self.path)
        return super().read_cached(position, size)

    def read_at(self, position: int, size: int) -> bytes:
        self._fs.wait_for(self.path)
        return super().read_at(position, size)

    def read_into(self, position: int, buffer: memoryview) -> int:
        self._fs.wait_for(self.path)
        return super().read_into(position, buffer)


class ColdFileSystem(LocalFileSystem):
    """A file system with cold files: the first read of one in `cold` blocks until `disk` is set."""

    __slots__ = ("cold", "disk", "waited_in")

    def __init__(self) -> None:
        self.cold: set[str] = set()
        self.disk = threading.Event()
        self.disk.set()
        self.waited_in: list[str] = []
        """The names of the threads that waited."""

    def open(self, path: str, *, create: bool = False) -> ColdFile:
        return ColdFile(super().open(path, create=create), self)

    def wait_for(self, path: str) -> None:
        """Wait for the disk if the file is cold; then it is no longer cold."""
        if path in self.cold:
            self.waited_in.append(threading.current_thread().name)
            assert self.disk.wait(10)
            self.cold.discard(path)


EVICTION_SECONDS = 20.0
"""How long `evict` tries: a page under writeback, or in the journal, stays for a moment."""


def evict(folder: Path) -> bool:
    """Evict the files below a folder from the page cache. Returns whether the system did so."""
    deadline = time.monotonic() + EVICTION_SECONDS
    files = (path for path in folder.rglob("*.*") if path.is_file() and path.stat().st_size)
    return all(_evict_file(path, deadline) for path in files)


def _evict_file(path: Path, deadline: float) -> bool:
    descriptor = os.open(path, os.O_RDWR)
    try:
        while not _evicted(descriptor):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
    except OSError:  # The file system cannot read without waiting (tmpfs).
        return False
    finally:
        os.close(descriptor)
    return True


def _evicted(descriptor: int) -> bool:
    """Ask the system to drop the file's pages. Returns whether its first page is gone."""
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    try:
        os.preadv(descriptor, (bytearray(1),), 0, os.RWF_NOWAIT)
    except BlockingIOError:
        return True
    return False
