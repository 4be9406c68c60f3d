"""What storage asks of files: the small interface through which a log directory is touched.

All of `storage/` uses `FileSystem` and `File`, so that tests can put an in-memory disk with faults
and power cuts under it (`tests/harness/memory_fs.py`); `local_files.py` has the real one. Every
`OSError` becomes a `DiskError`, with path and errno; none leaks.

What the interface promises, and a crash may take away:
  - bytes of a file are safe after `File.sync`; until then any 512-byte sector of them may be lost;
  - a created, renamed or removed name is safe after `sync_directory` of the directory that holds it;
  - `replace_durably` is atomic and safe when it returns.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator, Sequence
from typing import Protocol, TypeAlias

from storage.errors import DiskError, MissingFile, NoSpace, SyncFailed

Buffer: TypeAlias = bytes | bytearray | memoryview

SHORTAGES = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""What passes: nothing was done, and the same operation may work later."""


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

    def write_in_place(self, path: str, data: bytes) -> None:
        """Put `data` over the first bytes of a small file, in the block that it has, and sync.

        Needs no free space. Within the first 512 bytes a crash leaves all of it or nothing. Raises
        MissingFile.
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

    def is_plain_file(self, path: str) -> bool:
        """Whether the name is a file's, and its only one: no link of any kind. Raises MissingFile."""

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
