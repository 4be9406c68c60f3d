"""The interface through which backups are kept: objects, which never change, and indexes.

    object    the bytes of a file, under the name of their SHA-256; files with equal bytes share one
    index     what is in a backup (`backup_index.py`); names objects
    label     whose backups these are

`local_store.py` keeps them in a directory. A process holds the lock while it writes a backup or deletes
objects; readers take none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from storage.files.files import Buffer, Lock


class StoredObject(NamedTuple):
    """An object in the store."""

    sha256: str
    size: int


class ObjectReader(Protocol):
    """An open object."""

    @property
    def size(self) -> int: ...

    def read_at(self, position: int, size: int) -> bytes:
        """Read at most `size` bytes, fewer only at the end."""

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fill `buffer` from `position` on. Returns the bytes read, fewer only at the end."""

    def close(self) -> None:
        """Close it. Closing twice is allowed."""


class ObjectWriter(Protocol):
    """An object that is being written. Call either `finish` or `abandon`."""

    def append(self, parts: Sequence[Buffer]) -> object:
        """Write the next bytes. Raises DiskError, NoSpace."""

    def finish(self, sha256: str) -> None:
        """Store the object under its name, unless it is there. `BackupStore.settle` makes it durable."""

    def abandon(self) -> None:
        """Drop what was written."""


class BackupStore(Protocol):
    """Where the backups of one broker are kept. All methods raise DiskError if the store fails."""

    @property
    def place(self) -> str:
        """Where it is, for messages."""

    def lock(self) -> Lock:
        """Take the lock of the one writer. Raises BackupRefused if another process holds it."""

    # Objects.

    def size_of(self, sha256: str) -> int | None:
        """Returns the size of a finished object; None if there is none of that name."""

    def new_object(self) -> ObjectWriter:
        """Begin an object. The writer holds the lock."""

    def settle(self) -> None:
        """Make all finished objects durable."""

    def open_object(self, sha256: str) -> ObjectReader:
        """Raises MissingFile."""

    def objects(self) -> Iterator[StoredObject]:
        """Yields all objects, in no particular order."""

    def delete_objects(self, names: Iterable[str]) -> None:
        """Delete objects that no index names. Missing ones are fine."""

    def delete_leftovers(self) -> None:
        """Delete what writers that were interrupted have left, except whole objects."""

    # Indexes.

    def ids(self) -> list[str]:
        """Returns the ids of all backups, sorted."""

    def index_path(self, backup_id: str) -> str:
        """Returns where an index is, for messages."""

    def read_index(self, backup_id: str) -> bytes:
        """Raises MissingFile."""

    def write_index(self, backup_id: str, data: bytes) -> None:
        """Write an index durably: this is what makes the backup."""

    def delete_index(self, backup_id: str) -> None:
        """Delete an index durably. Raises MissingFile."""

    def read_unfinished(self) -> bytes | None:
        """Returns the index of what an interrupted backup has copied; None if there is none."""

    def write_unfinished(self, data: bytes) -> None:
        """Write such an index. It counts for nothing but the next backup, which need not copy that."""

    def delete_unfinished(self) -> None:
        """Delete it, if there is one."""
