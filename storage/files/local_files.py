"""The operating system's files. Only this module touches those of a log directory.

`LocalFileSystem` is the `FileSystem` that a broker uses; storage/files/files.py documents its
guarantees.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import stat
from collections.abc import Iterator, Sequence

from storage.files.errors import DirectoryLocked, NotCached
from storage.files.files import Buffer, FileIdentity, disk_error, disk_errors

_log = logging.getLogger("storage.files.local_files")

IOV_MAX = os.sysconf("SC_IOV_MAX")
STAT_BLOCK_BYTES = 512
UNRESERVED_BYTES_MAX = 1 << 20
"""With nothing reserved, a file takes at most this much more than its size (last block, extents)."""
READ_BYTES = 16 << 10
"""Large enough to read a manifest of 150 segments in one call."""


class LocalFile:
    """A file of the operating system. Owns one descriptor."""

    __slots__ = ("_descriptor", "_nowait", "path", "size")

    def __init__(self, path: str, descriptor: int, size: int) -> None:
        self.path = path
        self.size = size
        self._descriptor = descriptor
        self._nowait = os.RWF_NOWAIT

    def append(self, parts: Sequence[Buffer]) -> int:
        start = self.size
        try:
            end = start + self._write(parts, start)
        except OSError as error:
            # A later recovery must not find the part that was written.
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, start)
            raise disk_error("append to", self.path, error) from error
        self.size = end
        return start

    def _write(self, parts: Sequence[Buffer], position: int) -> int:
        """Write all parts at `position`, in as many calls as it takes. Returns the bytes written."""
        total = sum(map(len, parts))
        written = os.pwritev(self._descriptor, parts, position) if len(parts) <= IOV_MAX else 0
        if written == total:
            return total
        rest = memoryview(b"".join(parts))
        while written < total:
            count = os.pwrite(self._descriptor, rest[written:], position + written)
            if count == 0:
                raise OSError(errno.EIO, "write returned 0")
            written += count
        return total

    def read_cached(self, position: int, size: int) -> bytes | bytearray:
        data = bytearray(size)
        try:
            count = os.preadv(self._descriptor, (data,), position, self._nowait)
        except BlockingIOError:
            raise NotCached(self.path) from None
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP or not self._nowait:
                raise disk_error("read", self.path, error) from error
            self._nowait = 0
            return self.read_cached(position, size)
        if count < size:
            if position + count < self.size:
                raise NotCached(self.path)
            del data[count:]
        return data

    def read_at(self, position: int, size: int) -> bytes:
        with disk_errors("read", self.path):
            data = os.pread(self._descriptor, size, position)
            if len(data) == size or position + len(data) >= self.size:
                return data
            return self._read_rest(data, position, size)

    def _read_rest(self, data: bytes, position: int, size: int) -> bytes:
        parts, length = [data], len(data)
        while length < size:
            data = os.pread(self._descriptor, size - length, position + length)
            if not data:
                break
            parts.append(data)
            length += len(data)
        return b"".join(parts)

    def read_into(self, position: int, buffer: memoryview) -> int:
        filled = 0
        with disk_errors("read", self.path):
            while filled < len(buffer):
                count = os.preadv(self._descriptor, [buffer[filled:]], position + filled)
                if count == 0:
                    break
                filled += count
        return filled

    def read_ahead(self, position: int, size: int) -> None:
        with contextlib.suppress(OSError):
            os.posix_fadvise(self._descriptor, position, size, os.POSIX_FADV_WILLNEED)

    def truncate(self, size: int) -> None:
        with disk_errors("truncate", self.path):
            os.ftruncate(self._descriptor, size)
        self.size = size

    def reserve(self, size: int) -> None:
        with disk_errors("reserve", self.path):
            # Imported on demand: it loads ctypes, which a start does not need.
            from storage.files.fallocate import allocate

            allocate(self._descriptor, size)

    def free_reserved(self) -> None:
        with disk_errors("truncate", self.path):
            allocated = os.fstat(self._descriptor).st_blocks * STAT_BLOCK_BYTES
            if allocated - self.size > UNRESERVED_BYTES_MAX:
                os.ftruncate(self._descriptor, self.size)

    def begin_write_back(self, position: int, size: int) -> None:
        with disk_errors("write back", self.path):
            # Imported on demand: it loads ctypes, which a start does not need.
            from storage.files import write_back

            write_back.begin(self._descriptor, position, size)

    def end_write_back(self, position: int, size: int) -> None:
        with disk_errors("write back", self.path):
            from storage.files import write_back

            write_back.end(self._descriptor, position, size)

    def sync(self) -> None:
        with disk_errors("sync", self.path):
            os.fdatasync(self._descriptor)

    def fileno(self) -> int:
        return self._descriptor

    def sync_descriptor(self) -> int | None:
        return self._descriptor

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _read_to_end(descriptor: int) -> bytes:
    parts = [os.read(descriptor, READ_BYTES)]
    while parts[-1]:
        parts.append(os.read(descriptor, READ_BYTES))
    return b"".join(parts)


@contextlib.contextmanager
def _open_directory(path: str) -> Iterator[int]:
    """Open a directory for the body, which raises OSError like the opening does.

    Raises MissingFile if there is none, because nothing that the body does has failed then.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise disk_error("open", path, error) from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


class LocalLock:
    """An flock on a file, held while its descriptor is open."""

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class LocalFileSystem:
    """The operating system's file system."""

    __slots__ = ()

    def open(self, path: str, *, create: bool = False) -> LocalFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if create else 0)
        with disk_errors("open", path):
            descriptor = os.open(path, flags, 0o644)
            return LocalFile(path, descriptor, os.fstat(descriptor).st_size)

    def read_bytes(self, path: str) -> bytes:
        # No file object and no context manager: a start does this once for every partition.
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                return _read_to_end(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise disk_error("read", path, error) from error

    def write_bytes(self, path: str, data: bytes) -> None:
        self._write(path, data, mode=0o644)

    def _write(self, path: str, data: bytes, *, mode: int) -> None:
        with disk_errors("write", path):
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
        try:
            with disk_errors("write", path):
                written = 0
                while written < len(data):
                    written += os.write(descriptor, data[written:])
            with disk_errors("sync", path):
                os.fdatasync(descriptor)
        finally:
            os.close(descriptor)

    def replace_durably(self, path: str, data: bytes, *, secret: bool = False) -> None:
        staging = f"{path}.tmp"
        # Opened first: running out of descriptors after the rename would be a failure.
        with disk_errors("open", path), _open_directory(os.path.dirname(path)) as directory:
            self._write(staging, data, mode=0o600 if secret else 0o644)
            self.rename(staging, path)
            with disk_errors("sync", os.path.dirname(path)):
                os.fsync(directory)

    def write_in_place(self, path: str, data: bytes) -> None:
        with disk_errors("write in place", path):
            descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            with disk_errors("write in place", path):
                if os.pwrite(descriptor, data, 0) != len(data):
                    raise OSError(errno.EIO, "only a part was written")
            with disk_errors("sync", path):
                os.fdatasync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, source: str, target: str) -> None:
        with disk_errors("rename", source):
            os.rename(source, target)

    def link(self, source: str, target: str) -> None:
        with disk_errors("link", source):
            os.link(source, target)

    def unlink(self, path: str) -> None:
        with disk_errors("unlink", path):
            os.unlink(path)

    def list(self, path: str) -> list[str]:
        with disk_errors("list", path):
            return sorted(os.listdir(path))

    def make_directory(self, path: str) -> None:
        with disk_errors("create", path):
            os.makedirs(path, exist_ok=True)

    def remove_tree(self, path: str) -> None:
        with disk_errors("remove", path), contextlib.suppress(FileNotFoundError):
            # Imported on demand: a start does not delete anything.
            import shutil

            shutil.rmtree(path)

    def sync_directory(self, path: str) -> None:
        with disk_errors("sync", path), _open_directory(path) as directory:
            os.fsync(directory)

    def sync_all(self, path: str) -> None:
        with disk_errors("sync all of", path), _open_directory(path) as directory:
            # Imported on demand: it loads ctypes, which a start does not need.
            from storage.files.sync_all import sync_all

            sync_all(directory)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_plain_file(self, path: str) -> bool:
        with disk_errors("stat", path):
            found = os.lstat(path)
        return stat.S_ISREG(found.st_mode) and found.st_nlink == 1

    def identity(self, path: str) -> FileIdentity:
        with disk_errors("stat", path):
            found = os.lstat(path)
        return FileIdentity((found.st_dev, found.st_ino), found.st_nlink, found.st_size)

    def size(self, path: str) -> int:
        with disk_errors("stat", path):
            return os.stat(path).st_size

    def modified_ns(self, path: str) -> int:
        with disk_errors("stat", path):
            return os.stat(path).st_mtime_ns

    def free_bytes(self, path: str) -> int:
        with disk_errors("stat", path):
            disk = os.statvfs(path)
        return disk.f_bavail * disk.f_frsize

    def volume_bytes(self, path: str) -> int:
        with disk_errors("stat", path):
            disk = os.statvfs(path)
        return disk.f_blocks * disk.f_frsize

    def lock(self, path: str) -> LocalLock:
        with disk_errors("open", path):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise DirectoryLocked(os.path.dirname(path)) from error
            raise disk_error("lock", path, error) from error
        return LocalLock(descriptor)

    def restrict(self, path: str) -> None:
        _restrict(path, 0o700)
        for name in self.list(path):
            _restrict(os.path.join(path, name), 0o600)

    def forget_cached(self, path: str) -> None:
        for folder, _, names in os.walk(path):
            for name in names:
                with disk_errors("sync", folder):
                    _forget(os.path.join(folder, name))


def _forget(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        # The system drops only clean pages.
        os.fdatasync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


class ReadOnlyFileSystem(LocalFileSystem):
    """The operating system's file system for readers: files are opened read-only."""

    __slots__ = ()

    def open(self, path: str, *, create: bool = False) -> LocalFile:
        assert not create
        with disk_errors("open", path):
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            return LocalFile(path, descriptor, os.fstat(descriptor).st_size)


def _restrict(path: str, mode: int) -> None:
    try:
        if stat.S_IMODE(os.stat(path).st_mode) != mode:
            os.chmod(path, mode)
    except OSError as error:
        _log.warning("%s: other users may be able to read it: %s", path, error.strerror)
