"""The files of a backup as a file system to read, so that the checks of data directories work on it."""

from __future__ import annotations

import errno

from storage.backup.backup_index import BackupIndex, FileInBackup
from storage.backup.backup_store import BackupStore, ObjectReader
from storage.files.errors import MissingFile
from storage.files.files import File
from storage.files.null_files import NullFile, NullFileSystem


class BackupFiles(NullFileSystem):
    """`/<directory id>/<path in the log directory>` has the bytes of the file's object."""

    __slots__ = ("_files", "_names", "_store")

    def __init__(self, store: BackupStore, index: BackupIndex) -> None:
        self._store = store
        self._files = {f"/{file.path}": file for file in index.files}
        self._names: dict[str, set[str]] = {}
        for path in self._files:
            while path:
                path, _, name = path.rpartition("/")
                self._names.setdefault(path, set()).add(name)

    def open(self, path: str, *, create: bool = False) -> File:
        assert not create
        return _ReadFile(path, self._store.open_object(self._at(path).sha256))

    def read_bytes(self, path: str) -> bytes:
        file = self.open(path)
        try:
            return file.read_at(0, file.size)
        finally:
            file.close()

    def list(self, path: str) -> list[str]:
        names = self._names.get(path.rstrip("/"))
        if names is None:
            raise _missing(path)
        return sorted(names)

    def exists(self, path: str) -> bool:
        return path in self._files or path in self._names

    def is_plain_file(self, path: str) -> bool:
        return path in self._files

    def size(self, path: str) -> int:
        return self._at(path).size

    def modified_ns(self, path: str) -> int:
        return self._at(path).modified_ns

    def _at(self, path: str) -> FileInBackup:
        try:
            return self._files[path]
        except KeyError:
            raise _missing(path) from None


class _ReadFile(NullFile):
    """A file of the backup, open for reading."""

    __slots__ = ("_object",)

    def __init__(self, path: str, opened: ObjectReader) -> None:
        super().__init__(path)
        self._object = opened
        self.size = opened.size

    def read_at(self, position: int, size: int) -> bytes:
        return self._object.read_at(position, size)

    def read_cached(self, position: int, size: int) -> bytes:
        return self._object.read_at(position, size)

    def read_into(self, position: int, buffer: memoryview) -> int:
        return self._object.read_into(position, buffer)

    def close(self) -> None:
        self._object.close()


def _missing(path: str) -> MissingFile:
    return MissingFile("read", path, errno.ENOENT, "the backup does not have it")
