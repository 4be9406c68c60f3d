"""The operating system's files with faults: a real broker on a disk that a test can make fail."""

from __future__ import annotations

from collections.abc import Sequence

from storage.files.files import Buffer
from storage.files.local_files import LocalFile, LocalFileSystem
from tests.harness.faults import Faults


class FaultyFile(LocalFile):
    """A real file whose operations fail as `faults` says."""

    __slots__ = ("_faults",)

    def __init__(self, file: LocalFile, faults: Faults) -> None:
        """Take over `file` and its descriptor."""
        super().__init__(file.path, file.fileno(), file.size)
        self._faults = faults

    def append(self, parts: Sequence[Buffer]) -> int:
        self._faults.check("append to", self.path, sum(len(part) for part in parts))
        return super().append(parts)

    def read_at(self, position: int, size: int) -> bytes:
        self._faults.check("read", self.path)
        return super().read_at(position, size)

    def read_cached(self, position: int, size: int) -> bytes | bytearray:
        self._faults.check("read", self.path)
        return super().read_cached(position, size)

    def read_into(self, position: int, buffer: memoryview) -> int:
        self._faults.check("read", self.path)
        return super().read_into(position, buffer)

    def truncate(self, size: int) -> None:
        self._faults.check("truncate", self.path)
        super().truncate(size)

    def sync(self) -> None:
        self._faults.check("sync", self.path)
        super().sync()

    def sync_descriptor(self) -> None:
        """Returns None, so that callers use `sync`, which can fail."""


class FaultyFileSystem(LocalFileSystem):
    """Real files and directories whose operations fail as `faults` says."""

    __slots__ = ("faults",)

    def __init__(self) -> None:
        self.faults = Faults()

    def open(self, path: str, *, create: bool = False) -> FaultyFile:
        self.faults.check("open", path)
        return FaultyFile(super().open(path, create=create), self.faults)

    def read_bytes(self, path: str) -> bytes:
        self.faults.check("read", path)
        return super().read_bytes(path)

    def _write(self, path: str, data: bytes, *, mode: int) -> None:
        self.faults.check("write", path, len(data))
        super()._write(path, data, mode=mode)
        self.faults.check("sync", path)

    def rename(self, source: str, target: str) -> None:
        self.faults.check("rename", source)
        super().rename(source, target)

    def link(self, source: str, target: str) -> None:
        self.faults.check("link", source)
        super().link(source, target)

    def unlink(self, path: str) -> None:
        self.faults.check("unlink", path)
        super().unlink(path)

    def make_directory(self, path: str) -> None:
        self.faults.check("create", path)
        super().make_directory(path)

    def remove_tree(self, path: str) -> None:
        self.faults.check("remove", path)
        super().remove_tree(path)

    def free_bytes(self, path: str) -> int:
        self.faults.check("stat", path)
        space = self.faults.space
        return super().free_bytes(path) if space is None else space

    def volume_bytes(self, path: str) -> int:
        self.faults.check("stat", path)
        return super().volume_bytes(path)

    def sync_directory(self, path: str) -> None:
        self.faults.check("sync", path)
        super().sync_directory(path)

    def sync_all(self, path: str) -> None:
        self.faults.check("sync all of", path)
        super().sync_all(path)
