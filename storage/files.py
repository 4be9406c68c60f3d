"""The only place that touches files of a log directory.

`FileSystem` and `File` are the small interface that all of `storage/` uses, so that tests can put an
in-memory disk with faults and power cuts under it (`tests/harness/memory_fs.py`). `LocalFileSystem`
is the real one. Every `OSError` becomes a `DiskError` here, with path and errno; none leaks.

What the interface promises, and a crash may take away:
  - bytes of a file are safe after `File.sync`; until then any 512-byte sector of them may be lost;
  - a created, renamed or removed name is safe after `sync_directory` of the directory that holds it;
  - `replace_durably` is atomic and safe when it returns.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator, Sequence
from typing import Protocol, TypeAlias

from storage.errors import (
    DirectoryLocked,
    DiskError,
    MissingFile,
    NoSpace,
    NotCached,
    SyncFailed,
)

Buffer: TypeAlias = bytes | bytearray | memoryview

IOV_MAX = os.sysconf("SC_IOV_MAX")

SHORTAGES = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""What passes: nothing was done, and the same operation may work later."""
STAT_BLOCK_BYTES = 512
UNRESERVED_BYTES_MAX = 1 << 20
"""A file may take so much more than its size with nothing reserved: its last block, its extents."""
READ_BYTES = 16 << 10
"""A manifest of 150 segments is read in one call."""


class File(Protocol):
    """One open file. Appending is for one thread at a time; reading and syncing for any."""

    @property
    def path(self) -> str: ...
    @property
    def size(self) -> int:
        """Bytes written through this object or found when it was opened."""

    def append(self, parts: Sequence[Buffer]) -> int:
        """Write the parts one after the other at the end; the position where they begin.

        If it raises, the file is as long as before.
        """

    def read_at(self, position: int, size: int) -> bytes:
        """Read at most `size` bytes; fewer only at the end of the file."""

    def read_cached(self, position: int, size: int) -> bytes | bytearray:
        """Read as `read_at`, but never wait for the disk.

        Where the file system cannot tell whether it would have to, it may wait all the same.

        Raises:
            NotCached: a part of it is not in memory.
        """

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fill `buffer` from `position` on; how many bytes, fewer only at the end of the file."""

    def read_ahead(self, position: int, size: int) -> None:
        """Have the system read these bytes meanwhile: a hint, which never fails."""

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes."""

    def reserve(self, size: int) -> None:
        """Set disk space aside for the first `size` bytes; the file stays as long as it is.

        Appends up to there then cannot find the disk full. Does nothing where the file system
        cannot do it. Raises NoSpace, and a part may be set aside all the same.
        """

    def free_reserved(self) -> None:
        """Give back the space that is set aside behind the file's end."""

    def begin_write_back(self, position: int, size: int) -> None:
        """Have the disk begin to write these bytes, so that a later `sync` is short."""

    def end_write_back(self, position: int, size: int) -> None:
        """Wait for the disk to have written these bytes; they are not safe without `sync`.

        Raises:
            DiskError: bytes of this file could not be written. A later `sync` may succeed all the
                same: the file is lost.
        """

    def sync(self) -> None:
        """Return when all that was written is safe. Raises SyncFailed, which is final."""

    def fileno(self) -> int:
        """The descriptor, for `os.sendfile`; this object keeps owning it."""

    def sync_descriptor(self) -> int | None:
        """A descriptor whose fdatasync does all that `sync` does; None if only `sync` can."""

    def close(self) -> None:
        """Give the descriptor back; closing twice is allowed."""


class Lock(Protocol):
    """A held lock on a directory."""

    def release(self) -> None:
        """Let others have it."""


class FileSystem(Protocol):
    """The operations on names that storage needs."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and appending. `create` demands that it is not there yet."""

    def read_bytes(self, path: str) -> bytes:
        """The whole contents of a small file. Raises MissingFile."""

    def write_bytes(self, path: str, data: bytes) -> None:
        """Write a file and sync its bytes (not its name); what was there is gone."""

    def replace_durably(self, path: str, data: bytes, *, secret: bool = False) -> None:
        """Replace a file as one step that no crash can split; safe when it returns.

        A `secret` file may be read by its owner only.
        """

    def rename(self, source: str, target: str) -> None:
        """Rename a file or directory; an existing target file is replaced."""

    def unlink(self, path: str) -> None:
        """Remove a file's name. Raises MissingFile."""

    def list(self, path: str) -> list[str]:
        """The names in a directory, sorted. Raises MissingFile."""

    def make_directory(self, path: str) -> None:
        """Create a directory, and those above it; an existing one is fine."""

    def remove_tree(self, path: str) -> None:
        """Remove a directory with all in it; a missing one is fine."""

    def sync_directory(self, path: str) -> None:
        """Return when the names in a directory are safe. Raises SyncFailed."""

    def exists(self, path: str) -> bool:
        """Whether the name exists."""

    def size(self, path: str) -> int:
        """A file's size in bytes. Raises MissingFile."""

    def free_bytes(self, path: str) -> int:
        """What may still be written to the disk that has `path`."""

    def volume_bytes(self, path: str) -> int:
        """The size of the volume that has `path`."""

    def lock(self, path: str) -> Lock:
        """Take the lock file at `path` for this process. Raises DirectoryLocked."""

    def forget_cached(self, path: str) -> None:
        """Let all files below a directory be read from the disk again, not from the page cache.

        After a failed sync the cache may have bytes that the disk has not, and calls them clean.
        """


def unlink_if_there(fs: FileSystem, path: str) -> None:
    """Remove a file's name, unless it is not there or another thread is faster."""
    if fs.exists(path):
        with contextlib.suppress(MissingFile):
            fs.unlink(path)


@contextlib.contextmanager
def disk_errors(action: str, path: str) -> Iterator[None]:
    """Turn the system's errors into ours; the one boundary where that happens."""
    try:
        yield
    except OSError as error:
        raise disk_error(action, path, error) from error


def disk_error(action: str, path: str, error: OSError) -> DiskError:
    """The kind of `DiskError` that an errno calls for."""
    number = error.errno or 0
    kind: type[DiskError] = DiskError
    if action == "sync":
        kind = SyncFailed
    elif number in SHORTAGES:
        kind = NoSpace
    elif number == errno.ENOENT:
        kind = MissingFile
    return kind(action, path, number, error.strerror or str(error))


class LocalFile:
    """A file of the operating system's; owns one descriptor."""

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
            # What was written of the parts must not be found by a later recovery.
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, start)
            raise disk_error("append to", self.path, error) from error
        self.size = end
        return start

    def _write(self, parts: Sequence[Buffer], position: int) -> int:
        """Write all parts at `position`, over as many calls as the system needs; the bytes."""
        total = sum(len(part) for part in parts)
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
            # Imported when a topic asks for it, for what it imports.
            from storage.fallocate import allocate

            allocate(self._descriptor, size)

    def free_reserved(self) -> None:
        with disk_errors("truncate", self.path):
            allocated = os.fstat(self._descriptor).st_blocks * STAT_BLOCK_BYTES
            if allocated - self.size > UNRESERVED_BYTES_MAX:
                os.ftruncate(self._descriptor, self.size)

    def begin_write_back(self, position: int, size: int) -> None:
        with disk_errors("write back", self.path):
            # Imported when a pass needs it, for what it imports.
            from storage import write_back

            write_back.begin(self._descriptor, position, size)

    def end_write_back(self, position: int, size: int) -> None:
        with disk_errors("write back", self.path):
            from storage import write_back

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
    """A directory's descriptor. Raises OSError, as what is done with it does."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


class LocalLock:
    """An flock on a file, held as long as its descriptor is open."""

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class LocalFileSystem:
    """The operating system's files."""

    __slots__ = ()

    def open(self, path: str, *, create: bool = False) -> LocalFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if create else 0)
        with disk_errors("open", path):
            descriptor = os.open(path, flags, 0o644)
            return LocalFile(path, descriptor, os.fstat(descriptor).st_size)

    def read_bytes(self, path: str) -> bytes:
        # Without a file object and a context: a start does this once for every partition.
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
        # Opened first: once the new file is in place, the lack of a descriptor would be a failure.
        with disk_errors("open", path), _open_directory(os.path.dirname(path)) as directory:
            self._write(staging, data, mode=0o600 if secret else 0o644)
            self.rename(staging, path)
            with disk_errors("sync", os.path.dirname(path)):
                os.fsync(directory)

    def rename(self, source: str, target: str) -> None:
        with disk_errors("rename", source):
            os.rename(source, target)

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
            # Imported when something is deleted: a start needs none of it.
            import shutil

            shutil.rmtree(path)

    def sync_directory(self, path: str) -> None:
        with disk_errors("sync", path), _open_directory(path) as directory:
            os.fsync(directory)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def size(self, path: str) -> int:
        with disk_errors("stat", path):
            return os.stat(path).st_size

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

    def forget_cached(self, path: str) -> None:
        for folder, _, names in os.walk(path):
            for name in names:
                with disk_errors("sync", folder):
                    _forget(os.path.join(folder, name))


def _forget(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        # Only clean pages can be forgotten.
        os.fdatasync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


class ReadOnlyFileSystem(LocalFileSystem):
    """The operating system's files for who only looks: what is opened here cannot be written to."""

    __slots__ = ()

    def open(self, path: str, *, create: bool = False) -> LocalFile:
        assert not create
        with disk_errors("open", path):
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            return LocalFile(path, descriptor, os.fstat(descriptor).st_size)
