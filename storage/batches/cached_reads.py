"""Two ways to read a segment file: without waiting for the disk, or loading it into the page cache.

    loop     CachedReads    raises NotCached if the page cache does not have the bytes
    worker   WaitingReads   waits, so that afterwards the page cache has the bytes to send

A range is made ready before it is sent: the loop, which must not wait, probes it; a worker reads it
through. A probe reads single bytes: pages enter and leave the cache in clusters (read-ahead, folios), so
a few bytes are enough, and a wrong guess makes `sendfile` wait but never gives a wrong answer.
"""

from __future__ import annotations

from typing import Protocol

from storage.files.errors import CorruptLog
from storage.files.files import File

PROBE_INTERVAL_BYTES = 256 << 10
CHUNK_BYTES = 256 << 10


class Reads(Protocol):
    """A way to read a file."""

    may_wait: bool

    @property
    def path(self) -> str: ...
    def read_at(self, position: int, size: int) -> bytes | bytearray:
        """Read at most `size` bytes, fewer only at the end of the file. May raise NotCached."""

    def make_ready(self, position: int, size: int) -> None:
        """Return when the range can be sent without waiting for the disk."""


class CachedReads:
    """Reads from the page cache only; raises NotCached for other bytes."""

    __slots__ = ("_file",)
    may_wait = False

    def __init__(self, file: File) -> None:
        self._file = file

    @property
    def path(self) -> str:
        return self._file.path

    def read_at(self, position: int, size: int) -> bytes | bytearray:
        return self._file.read_cached(position, size)

    def make_ready(self, position: int, size: int) -> None:
        """Raise NotCached if a probed byte is not in memory."""
        end = position + size
        for at in (*range(position, end, PROBE_INTERVAL_BYTES), end - 1):
            self._file.read_cached(at, 1)


class WaitingReads:
    """Reads that wait for the disk."""

    __slots__ = ("_file",)
    may_wait = True

    def __init__(self, file: File) -> None:
        self._file = file

    @property
    def path(self) -> str:
        return self._file.path

    def read_at(self, position: int, size: int) -> bytes:
        return self._file.read_at(position, size)

    def make_ready(self, position: int, size: int) -> None:
        """Read the range in chunks and throw these away.

        Raises:
            CorruptLog: the file ends inside the range.
        """
        buffer = memoryview(bytearray(min(size, CHUNK_BYTES)))
        for start in range(position, position + size, CHUNK_BYTES):
            chunk = buffer[: position + size - start]
            if self._file.read_into(start, chunk) < len(chunk):
                raise CorruptLog(self.path, start, "the file ends inside a batch")
