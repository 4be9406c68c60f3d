"""A file system of scratch files: all of them lie in one file that has no name, and nothing stays.

For the key sidecars that a rehearsal of a cleaning pass makes: written once, one after the other, and
read as often as needed. The one file below is made with the first byte, and its name is removed at
once, so that nobody meets it, and a crash leaves nothing either.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from contextlib import suppress

from storage.errors import MissingFile, StorageError
from storage.files import Buffer, File, FileSystem
from storage.null_files import NullFile, NullFileSystem


class ScratchFile(NullFile):
    """A run of bytes in the one file below. Only the last one that was made can be appended to."""

    __slots__ = ("_files", "start")

    def __init__(self, files: ScratchFileSystem, path: str) -> None:
        super().__init__(path)
        self._files = files
        self.start = files.used_bytes

    def append(self, parts: Sequence[Buffer]) -> int:
        position = self.size
        assert self._files.used_bytes == self.start + position, "another one was begun meanwhile"
        self._files.append(parts)
        self.size += sum(len(part) for part in parts)
        return position

    def read_at(self, position: int, size: int) -> bytes:
        return self._files.read_at(self.start + position, min(size, max(0, self.size - position)))


class ScratchFileSystem(NullFileSystem):
    """Files by path, for one thread, until `close`. No byte is given back before that."""

    __slots__ = ("_below", "_file", "_files", "_path")

    def __init__(self, below: FileSystem, path: str) -> None:
        """`path`: the name that the file below has for a moment; nothing else may have it."""
        self._below = below
        self._path = path
        self._file: File | None = None
        self._files: dict[str, ScratchFile] = {}

    @property
    def used_bytes(self) -> int:
        """Bytes that all files together have taken."""
        return self._file.size if self._file is not None else 0

    def append(self, parts: Sequence[Buffer]) -> None:
        """Write to the end of the file below. Raises NoSpace, DiskError."""
        if self._file is None:
            with suppress(MissingFile):
                # A crash came just here.
                self._below.unlink(self._path)
            self._file = self._below.open(self._path, create=True)
            self._below.unlink(self._path)
        self._file.append(parts)

    def read_at(self, position: int, size: int) -> bytes:
        """Read from the file below. Raises DiskError."""
        return self._file.read_at(position, size) if self._file is not None else b""

    def close(self) -> None:
        """Give the space back."""
        if self._file is not None:
            with suppress(StorageError):
                self._file.close()
        self._file = None
        self._files.clear()

    def open(self, path: str, *, create: bool = False) -> File:
        if create:
            self._files[path] = ScratchFile(self, path)
        return self._found("open", path)

    def rename(self, source: str, target: str) -> None:
        self._files[target] = self._found("rename", source)
        del self._files[source]

    def unlink(self, path: str) -> None:
        self._found("unlink", path)
        del self._files[path]

    def exists(self, path: str) -> bool:
        return path in self._files

    def size(self, path: str) -> int:
        return self._found("stat", path).size

    def _found(self, operation: str, path: str) -> ScratchFile:
        if path not in self._files:
            raise MissingFile(operation, path, errno.ENOENT, "it is not there")
        return self._files[path]
