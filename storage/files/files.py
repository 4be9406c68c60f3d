"""The interface through which storage uses files and directories.

All of `storage/` uses `FileSystem` and `File`, so that tests can put an in-memory disk with faults
and power cuts under it (`tests/harness/memory_fs.py`); `local_files.py` has the real one. Every
`OSError` becomes a `DiskError` with path and errno; none escapes.

What survives a crash:
  - bytes of a file after `File.sync`; until then any 512-byte sector of them may be lost;
  - a created, renamed or removed name after `sync_directory` of the directory that holds it;
  - all of that after `sync_all`;
  - the effect of `replace_durably`, which is atomic, when it returns.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from storage.files.errors import DiskError, LinksRefused, MissingFile, NoSpace, SyncFailed

Buffer: TypeAlias = bytes | bytearray | memoryview

SHORTAGES = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""Temporary shortages: nothing was done, and the same operation may work later."""

REFUSALS_OF_LINKS = frozenset(
    {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}
)
"""How file systems refuse a hard link (link(2))."""


class File(Protocol):
    """An open file. One thread at a time may append; any thread may read and sync."""

    @property
    def path(self) -> str: ...
    @property
    def size(self) -> int:
        """The bytes written through this object or found when it was opened."""

    def append(self, parts: Sequence[Buffer]) -> int:
        """Write the parts one after the other at the end. Returns the position where they begin.

        If it raises, the file is as long as before.
        """

    def read_at(self, position: int, size: int) -> bytes:
        """Read at most `size` bytes, fewer only at the end of the file."""

    def read_cached(self, position: int, size: int) -> bytes | bytearray:
        """Read like `read_at`, but never wait for the disk.

        May wait after all on a file system that cannot tell whether it would have to.

        Raises:
            NotCached: a part of it is not in memory.
        """

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fill `buffer` from `position` on. Returns the bytes read, fewer only at the file's end."""

    def read_ahead(self, position: int, size: int) -> None:
        """Ask the system to read these bytes in the background: a hint, which never fails."""

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes."""

    def reserve(self, size: int) -> None:
        """Allocate disk space for the first `size` bytes without changing the file's size.

        Appends up to there then cannot find the disk full. Does nothing where the file system
        does not support it. Raises NoSpace, after which a part may be allocated.
        """

    def free_reserved(self) -> None:
        """Free the allocated space after the file's end."""

    def begin_write_back(self, position: int, size: int) -> None:
        """Start writing these bytes to the disk, so that a later `sync` is short."""

    def end_write_back(self, position: int, size: int) -> None:
        """Wait until the disk has written these bytes; only `sync` makes them durable.

        Raises:
            DiskError: bytes of this file could not be written. The file is lost, even though a later
                `sync` may succeed.
        """

    def sync(self) -> None:
        """Return when all written bytes are durable. Raises SyncFailed, which is final."""

    def fileno(self) -> int:
        """Returns the descriptor, for `os.sendfile`; this object still owns it."""

    def sync_descriptor(self) -> int | None:
        """Returns a descriptor whose fdatasync equals `sync`; None if only `sync` will do."""

    def close(self) -> None:
        """Close the descriptor. Closing twice is allowed."""


class Lock(Protocol):
    """A held lock on a directory."""

    def release(self) -> None:
        """Release the lock."""


@dataclass(frozen=True, slots=True)
class BegunSync:
    """A started sync whose fdatasync another thread performs (`storage/files/sync_threads.pyx`).

    Call either `end` or `abandon`, once: until then the file stays open and no other thread can sync it.
    """

    descriptor: int
    end: Callable[[int], None]
    """Takes 0, or the errno of an fdatasync that failed. Raises SyncFailed, which is final."""
    abandon: Callable[[], None]
    """Called if the fdatasync never ran."""


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """Tells the file of a name from others, and how many names it has."""

    number: tuple[int, int]
    """Of the device and of the file on it: two names of one file have the same."""
    names_count: int
    """How many names the file has, hard links, in all directories."""
    size: int
    """In bytes."""


class FileSystem(Protocol):
    """The operations on names that storage uses."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and appending. With `create` the file must not exist yet."""

    def read_bytes(self, path: str) -> bytes:
        """Returns the contents of a small file. Raises MissingFile."""

    def write_bytes(self, path: str, data: bytes) -> None:
        """Write a file and sync its bytes, not its name; replaces earlier contents."""

    def replace_durably(self, path: str, data: bytes, *, secret: bool = False) -> None:
        """Replace a file atomically; durable when it returns.

        A `secret` file is readable by its owner only.
        """

    def write_in_place(self, path: str, data: bytes) -> None:
        """Overwrite the first bytes of a small file, in its existing block, and sync.

        Needs no free space. Within the first 512 bytes a crash leaves either all of it or nothing.
        Raises MissingFile.
        """

    def rename(self, source: str, target: str) -> None:
        """Rename a file or directory; an existing target file is replaced."""

    def link(self, source: str, target: str) -> None:
        """Give a file a second name, a hard link. Raises LinksRefused if the file system has none."""

    def unlink(self, path: str) -> None:
        """Remove a file's name. Raises MissingFile."""

    def list(self, path: str) -> list[str]:
        """Returns the names in a directory, sorted. Raises MissingFile."""

    def make_directory(self, path: str) -> None:
        """Create a directory and those above it; an existing one is fine."""

    def remove_tree(self, path: str) -> None:
        """Remove a directory with its contents; a missing one is fine."""

    def sync_directory(self, path: str) -> None:
        """Return when the names in a directory are durable.

        Raises:
            MissingFile: there is no such directory, perhaps because another thread has just removed it;
                no sync has failed.
            SyncFailed: the sync failed.
        """

    def sync_all(self, path: str) -> None:
        """Return when all bytes and names on the disk that has `path` are durable, with one sync.

        Raises DiskError if a write has failed, perhaps that of another program: unlike a SyncFailed it
        says nothing about a particular file, and the files' own syncs report their failures.
        """

    def exists(self, path: str) -> bool:
        """Returns whether the name exists."""

    def is_plain_file(self, path: str) -> bool:
        """Returns whether the name is a regular file's only name, not a link. Raises MissingFile."""

    def identity(self, path: str) -> FileIdentity:
        """Returns which file has the name, and how many others it has. Raises MissingFile."""

    def size(self, path: str) -> int:
        """Returns a file's size in bytes. Raises MissingFile."""

    def modified_ns(self, path: str) -> int:
        """Returns when a file's bytes last changed, in ns since 1970, by the clock of the file system.

        That clock may be coarse: two changes within some milliseconds may have the same time. Raises
        MissingFile.
        """

    def free_bytes(self, path: str) -> int:
        """Returns the bytes that may still be written to the disk that has `path`."""

    def volume_bytes(self, path: str) -> int:
        """Returns the size of the volume that has `path`, in bytes."""

    def lock(self, path: str) -> Lock:
        """Lock the file at `path` for this process. Raises DirectoryLocked."""

    def restrict(self, path: str) -> None:
        """Let only the broker's own user access a directory and its files.

        A file system that has no modes is left as it is, with a warning.
        """

    def forget_cached(self, path: str) -> None:
        """Drop all files below a directory from the page cache, so that reads go to the disk.

        After a failed sync the cache may hold bytes that the disk does not, and treat them as clean.
        """


def unlink_if_there(fs: FileSystem, path: str) -> None:
    """Remove a file's name, unless it is missing or another thread removes it first."""
    if fs.exists(path):
        with contextlib.suppress(MissingFile):
            fs.unlink(path)


def unnamed_file(fs: FileSystem, path: str) -> File:
    """Create a file and remove its name at once, so that it goes with the process. Returns it, open.

    Args:
        path: a name for a moment, which nothing else uses. A crash in between leaves an empty file
            there, which the next call removes.

    Raises:
        DiskError: there is no such file.
    """
    unlink_if_there(fs, path)
    file = fs.open(path, create=True)
    try:
        fs.unlink(path)
    except BaseException:
        file.close()
        raise
    return file


def remove_tree_durably(fs: FileSystem, path: str) -> None:
    """Remove a directory with its contents, so that it does not come back after a crash.

    A missing one is fine. Raises DiskError.
    """
    fs.remove_tree(path)
    # Another thread may remove the directory above, too: its topic was deleted.
    with contextlib.suppress(MissingFile):
        fs.sync_directory(path.rpartition("/")[0])


@contextlib.contextmanager
def disk_errors(action: str, path: str) -> Iterator[None]:
    """Turn an OSError into a DiskError. All conversions happen here."""
    try:
        yield
    except OSError as error:
        raise disk_error(action, path, error) from error


def disk_error(action: str, path: str, error: OSError) -> DiskError:
    """Returns the `DiskError` of the kind that fits the errno."""
    number = error.errno or 0
    kind: type[DiskError] = DiskError
    if action == "sync":
        kind = SyncFailed
    elif number in SHORTAGES:
        kind = NoSpace
    elif action == "link" and number in REFUSALS_OF_LINKS:
        kind = LinksRefused
    elif number == errno.ENOENT:
        kind = MissingFile
    return kind(action, path, number, error.strerror or str(error))
