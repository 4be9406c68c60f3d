"""The lines of files or of standard input, and how far they have been read."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO


class InputLines:
    """Lines, with their ends, of several files or of standard input. To be read once.

    Not safe for threads.
    """

    __slots__ = ("_files", "read_bytes", "total_bytes")

    def __init__(self, files: Sequence[Path]) -> None:
        # Constant after construction.
        self._files = files
        self.total_bytes = _total(files)
        """How much there is to read; None where it is a pipe or a terminal, which does not say."""
        # State.
        self.read_bytes = 0

    @property
    def is_typed(self) -> bool:
        """Does somebody type the lines?"""
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
    """The bytes that all of them have, if all are regular files. Opens none: a pipe would wait."""
    try:
        found = [path.stat() for path in files] or [os.fstat(sys.stdin.fileno())]
        begun = 0 if files or not stat.S_ISREG(found[0].st_mode) else sys.stdin.buffer.tell()
    except (OSError, ValueError):
        return None
    if not all(stat.S_ISREG(each.st_mode) for each in found):
        return None
    return max(0, sum(each.st_size for each in found) - begun)
