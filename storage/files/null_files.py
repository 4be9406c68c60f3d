"""A file system that stores nothing: it counts the written bytes and discards them.

For a rehearsal of a cleaning pass, whose cleaned segments no one reads. Every read fails.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence

from storage.files.errors import MissingFile
from storage.files.files import Buffer, File, FileIdentity, Lock


class NullFile:
    """A file that only counts the bytes written to it."""

    __slots__ = ("path", "size")

    def __init__(self, path: str) -> None:
        self.path = path
        self.size = 0

    def append(self, parts: Sequence[Buffer]) -> int:
        position = self.size
        self.size += sum(len(part) for part in parts)
        return position

    def read_at(self, position: int, size: int) -> bytes:
        raise _nothing_here(self.path)

    def read_cached(self, position: int, size: int) -> bytes | bytearray:
        raise _nothing_here(self.path)

    def read_into(self, position: int, buffer: memoryview) -> int:
        raise _nothing_here(self.path)

    def read_ahead(self, position: int, size: int) -> None: ...

    def truncate(self, size: int) -> None:
        self.size = min(self.size, size)

    def reserve(self, size: int) -> None: ...

    def free_reserved(self) -> None: ...

    def begin_write_back(self, position: int, size: int) -> None: ...

    def end_write_back(self, position: int, size: int) -> None: ...

    def sync(self) -> None: ...

    def fileno(self) -> int:
        raise _nothing_here(self.path)

    def sync_descriptor(self) -> int | None:
        return None

    def close(self) -> None: ...


class NullFileSystem:
    """Accepts every write and has no files."""

    __slots__ = ()

    def open(self, path: str, *, create: bool = False) -> File:
        if not create:
            raise _nothing_here(path)
        return NullFile(path)

    def read_bytes(self, path: str) -> bytes:
        raise _nothing_here(path)

    def write_bytes(self, path: str, data: bytes) -> None: ...

    def replace_durably(self, path: str, data: bytes, *, secret: bool = False) -> None: ...

    def write_in_place(self, path: str, data: bytes) -> None: ...

    def rename(self, source: str, target: str) -> None: ...

    def link(self, source: str, target: str) -> None: ...

    def unlink(self, path: str) -> None: ...

    def list(self, path: str) -> list[str]:
        return []

    def make_directory(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None: ...

    def sync_directory(self, path: str) -> None: ...

    def sync_all(self, path: str) -> None: ...

    def exists(self, path: str) -> bool:
        return False

    def is_plain_file(self, path: str) -> bool:
        raise _nothing_here(path)

    def identity(self, path: str) -> FileIdentity:
        raise _nothing_here(path)

    def size(self, path: str) -> int:
        raise _nothing_here(path)

    def modified_ns(self, path: str) -> int:
        raise _nothing_here(path)

    def free_bytes(self, path: str) -> int:
        return 0

    def volume_bytes(self, path: str) -> int:
        return 0

    def lock(self, path: str) -> Lock:
        raise _nothing_here(path)

    def restrict(self, path: str) -> None: ...

    def forget_cached(self, path: str) -> None: ...


def _nothing_here(path: str) -> MissingFile:
    return MissingFile("read", path, errno.ENOENT, "this file system stores nothing")
