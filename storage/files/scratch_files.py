"""A file system of scratch files, which share one file without a name and leave nothing behind.

A rehearsal of a cleaning pass keeps its key sidecars here: written once, one after the other, and read
as often as needed. The shared file is created at the first write and unlinked at once, so that no one
finds it and a crash leaves nothing.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from contextlib import suppress

from storage.files.errors import MissingFile, StorageError
from storage.files.files import Buffer, File, FileSystem, unnamed_file
from storage.files.null_files import NullFile, NullFileSystem


class ScratchFile(NullFile):
    """A run of bytes in the shared file. Only the newest scratch file can be appended to."""

    __slots__ = ("_files", "start")

    def __init__(self, files: ScratchFileSystem, path: str) -> None:
        super().__init__(path)
        self._files = files
        self.start = files.used_bytes

    def append(self, parts: Sequence[Buffer]) -> int:
        position = self.size
        assert self._files.used_bytes == self.start + position, "a newer scratch file was begun"
        self._files.append(parts)
        self.size += sum(len(part) for part in parts)
        return position

    def read_at(self, position: int, size: int) -> bytes:
        return self._files.read_at(self.start + position, min(size, max(0, self.size - position)))


class ScratchFileSystem(NullFileSystem):
    """Files by path, for one thread. Their space is freed by `close`, not before."""

    __slots__ = ("_below", "_file", "_files", "_path")

    def __init__(self, below: FileSystem, path: str) -> None:
        """`path`: the name that the shared file has for a moment; no other file may have it."""
        self._below = below
        self._path = path
        self._file: File | None = None
        self._files: dict[str, ScratchFile] = {}

    @property
    def used_bytes(self) -> int:
        """The bytes that all files together take."""
        return self._file.size if self._file is not None else 0

    def append(self, parts: Sequence[Buffer]) -> None:
        """Append to the shared file. Raises NoSpace, DiskError."""
        if self._file is None:
            self._file = unnamed_file(self._below, self._path)
        self._file.append(parts)

    def read_at(self, position: int, size: int) -> bytes:
        """Read from the shared file. Raises DiskError."""
        return self._file.read_at(position, size) if self._file is not None else b""

    def close(self) -> None:
        """Close the shared file, which frees its space."""
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
            raise MissingFile(operation, path, errno.ENOENT, "there is no such file")
        return self._files[path]
