"""Reads lines from files or standard input, and counts the bytes read."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO


class InputLines:
    """The lines of several files or of standard input, with their newlines. Iterate only once.

    Not safe for threads.
    """

    __slots__ = ("_files", "read_bytes", "total_bytes")

    def __init__(self, files: Sequence[Path]) -> None:
        # Constant after construction.
        self._files = files
        self.total_bytes = _total(files)
        """The bytes to read. None for a pipe or a terminal, whose size is unknown."""
        # State.
        self.read_bytes = 0

    @property
    def is_typed(self) -> bool:
        """Whether a user types the lines on a terminal."""
        return not self._files and sys.stdin.isatty()

    def __iter__(self) -> Iterator[bytes]:
        if not self._files:
            yield from self._counted(sys.stdin.buffer)
        for path in self._files:
            with path.open("rb") as file:
                yield from self._counted(file)

    def _counted(self, file: BinaryIO) -> Iterator[bytes]:
        for line in file:
            self.read_bytes += len(line)
            yield line


def _total(files: Sequence[Path]) -> int | None:
    """Returns the total bytes if all inputs are regular files, else None.

    Does not open the files: opening a named pipe would block.
    """
    try:
        found = [path.stat() for path in files] or [os.fstat(sys.stdin.fileno())]
        # Another process may have read a part of standard input already.
        position = 0 if files or not stat.S_ISREG(found[0].st_mode) else sys.stdin.buffer.tell()
    except (OSError, ValueError):
        return None
    if not all(stat.S_ISREG(each.st_mode) for each in found):
        return None
    return max(0, sum(each.st_size for each in found) - position)
