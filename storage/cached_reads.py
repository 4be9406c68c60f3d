"""Two ways to read a segment file: without waiting for the disk, and bringing what is read into memory.

    loop     CachedReads    what the page cache does not have raises NotCached
    worker   WaitingReads   waits, so that afterwards the page cache has what will be sent

A range that will be sent is made ready first: probed where nobody may wait, read through where one may.
A probe looks at single bytes: pages come and go in clusters (read-ahead, folios), so that a few tell
enough, and what is wrong with the guess is a wait of `sendfile`, not a wrong answer.
"""

from __future__ import annotations

from typing import Protocol

from storage.errors import CorruptLog
from storage.files import File

PROBE_INTERVAL_BYTES = 256 << 10
CHUNK_BYTES = 256 << 10


class Reads(Protocol):
    """How a file is read."""

    may_wait: bool

    @property
    def path(self) -> str: ...
    def read_at(self, position: int, size: int) -> bytes | bytearray:
        """Read at most `size` bytes; fewer only at the end of the file. May raise NotCached."""

    def make_ready(self, position: int, size: int) -> None:
        """Return when a range can be sent without a wait."""


class CachedReads:
    """Reads of what the page cache has; all else raises NotCached."""

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
        """Raise NotCached if a probe finds nothing."""
        end = position + size
        for at in (*range(position, end, PROBE_INTERVAL_BYTES), end - 1):
            self._file.read_cached(at, 1)


class WaitingReads:
    """Reads that take as long as the disk does."""

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
        """Read the range through, in chunks that are thrown away.

        Raises:
            CorruptLog: the file ends inside the range.
        """
        buffer = memoryview(bytearray(min(size, CHUNK_BYTES)))
        for start in range(position, position + size, CHUNK_BYTES):
            chunk = buffer[: position + size - start]
            if self._file.read_into(start, chunk) < len(chunk):
                raise CorruptLog(self.path, start, "the file ends inside a batch")
