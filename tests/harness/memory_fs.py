"""An in-memory disk that loses what was not synced, for tests of storage.

It guarantees exactly the durability that `storage/files/files.py` promises:
  - bytes written since a file's last sync are kept or lost sector by sector (512 bytes or 4 KiB);
    a lost sector within the file's new length reads as zeros, a lost length truncates it;
  - names created, renamed or removed since a directory's last sync are kept up to some point and lost
    from there on, in each directory independently.

`on_operation` is called after every operation that changes the disk, so that a sweep can create a
crash state there with `after_crash` or `after_kill` and recover it. `faults` makes operations raise like
the system would. After a failed sync its bytes can still be read, as from Linux's page cache, but no
later sync makes them durable.
"""

from __future__ import annotations

import copy
import enum
import errno
import itertools
import os
import threading
from collections.abc import Callable, Sequence
from functools import lru_cache, wraps
from random import Random
from typing import Concatenate, ParamSpec, TypeVar

from storage.files.errors import DirectoryLocked, DiskError, NotCached, SyncFailed
from storage.files.files import Buffer, FileIdentity, disk_error
from tests.harness.faults import Faults

SECTOR_SIZES = (512, 4096)

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")

# Threads share the disk: a crash state is not created in the middle of another thread's change, and of
# two threads that make the same directory, one makes it and the other finds it.
_tree = threading.RLock()
_ticks = itertools.count(1)
"""The clock of all disks: each change has a time of its own, in ns."""


def whole(
    method: Callable[Concatenate[S, P], R],
) -> Callable[Concatenate[S, P], R]:
    """Run a method without a change by another thread in between."""

    @wraps(method)
    def locked(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with _tree:
            return method(self, *args, **kwargs)

    return locked


class Loss(enum.Enum):
    """What a crash does to data that was not synced."""

    NOTHING = "nothing"
    EVERYTHING = "everything"
    TORN = "torn"


class Inode:
    """A file's bytes: those that reads return, and those that surely survive a crash."""

    __slots__ = ("data", "durable", "has_lost", "modified_ns", "reserved", "writes")

    def __init__(self, data: bytes = b"") -> None:
        # `data` is the same object as `durable` until the first write; then it is a bytearray.
        self.data: bytes | bytearray = data
        self.durable = data
        self.writes: list[tuple[int, bytes]] = []
        """Writes since the last sync: (position, bytes); (size, b"") for a truncation."""
        self.has_lost = False
        """Whether some of its bytes never reach the disk, because a sync failed."""
        self.modified_ns = next(_ticks)
        self.reserved = 0
        """Bytes of the disk reserved for this file; they stay reserved after a crash."""

    @whole
    def write(self, position: int, data: bytes) -> None:
        target = self._writable()
        if position > len(target):
            target.extend(bytes(position - len(target)))
        target[position : position + len(data)] = data
        self.writes.append((position, data))
        self.modified_ns = next(_ticks)

    @whole
    def truncate(self, size: int) -> None:
        target = self._writable()
        if size < len(target):
            del target[size:]
        else:
            target.extend(bytes(size - len(target)))
        self.writes.append((size, b""))
        self.modified_ns = next(_ticks)

    @whole
    def sync(self) -> None:
        if self.has_lost:
            self.durable = self._written()
        elif self.writes:
            self.durable = self.data = bytes(self.data)
        self.writes = []

    @whole
    def sync_failed(self) -> None:
        """Mark the dirty pages as clean although the disk has none of them."""
        self.has_lost = self.has_lost or bool(self.writes)
        self.writes = []

    @whole
    def forget_cached(self) -> None:
        """Drop the cached pages, so that reads return the disk's content."""
        if self.has_lost:
            self.durable = self.data = self._written()
            self.writes, self.has_lost = [], False

    def _written(self) -> bytes:
        """Returns the disk's content after all writes since the last sync."""
        left = Inode(self.durable)
        for position, data in self.writes:
            if data:
                left.write(position, data)
            else:
                left.truncate(position)
        return bytes(left.data)

    def _writable(self) -> bytearray:
        if not isinstance(self.data, bytearray):
            self.data = bytearray(self.data)
        return self.data

    def after_crash(self, loss: Loss, random: Random) -> bytes:
        """Returns the file's bytes after a crash."""
        if not self.writes or loss is Loss.EVERYTHING:
            return self.durable
        if loss is Loss.NOTHING:
            return self._written() if self.has_lost else bytes(self.data)
        left = Inode(self.durable)
        sector = random.choice(SECTOR_SIZES)
        done = random.randrange(len(self.writes) + 1)
        for number, (position, data) in enumerate(self.writes):
            # Write-back has no order: a later write may have reached the disk and an earlier one
            # not.
            if number < done or random.random() < 0.3:
                _write_torn(left, position, data, sector, random)
        return bytes(left.data)


def _write_torn(inode: Inode, position: int, data: bytes, sector: int, random: Random) -> None:
    """Apply the part of one write that reached the disk."""
    if not data:
        inode.truncate(position)
        return
    if random.random() < 0.5:
        inode.write(position, data)
        return
    start = 0
    while start < len(data):
        end = min(len(data), (position + start) // sector * sector + sector - position)
        if random.random() < 0.6:
            inode.write(position + start, data[start:end])
        start = end


class Directory:
    """The names in a directory: those that are visible, and those that surely survive a crash."""

    __slots__ = ("changes", "durable", "entries")

    def __init__(self, entries: dict[str, Node] | None = None) -> None:
        self.entries: dict[str, Node] = entries if entries is not None else {}
        self.durable: dict[str, Node] = dict(self.entries)
        self.changes: list[tuple[str, str, Node | None]] = []
        """Changes since the last sync: (name, old name of a rename or "", node; None for a removal)."""

    @whole
    def put(self, name: str, node: Node | None, *, renamed_from: str = "") -> None:
        _apply(self.entries, (name, renamed_from, node))
        self.changes.append((name, renamed_from, node))

    @whole
    def sync(self) -> None:
        if self.changes:
            self.durable = dict(self.entries)
            self.changes = []

    @whole
    def sync_all(self) -> None:
        """Sync the directory with everything below it."""
        self.sync()
        for node in self.entries.values():
            if isinstance(node, Directory):
                node.sync_all()
            else:
                node.sync()

    @whole
    def forget_cached(self) -> None:
        """Drop the cached pages of all files below."""
        for node in self.entries.values():
            node.forget_cached()

    @whole
    def names_count(self, inode: Inode) -> int:
        """Returns how many names below it a file has."""
        return sum(
            node.names_count(inode) if isinstance(node, Directory) else node is inode
            for node in self.entries.values()
        )

    def after_crash(self, loss: Loss, random: Random, left_of: dict[Inode, Inode]) -> Directory:
        """Returns the directory, with everything below it, after a crash.

        Args:
            left_of: what is left of each file so far; a file with two names is one afterwards, too.
        """
        entries = dict(self.durable)
        for change in self.changes[: self._kept(loss, random)]:
            _apply(entries, change)
        left: dict[str, Node] = {}
        for name, node in entries.items():
            if isinstance(node, Directory):
                left[name] = node.after_crash(loss, random, left_of)
                continue
            inode = left_of.get(node)
            if inode is None:
                left_of[node] = inode = Inode(node.after_crash(loss, random))
                inode.reserved = node.reserved
                inode.modified_ns = node.modified_ns
            left[name] = inode
        return Directory(left)

    def _kept(self, loss: Loss, random: Random) -> int:
        if loss is Loss.TORN:
            return random.randrange(len(self.changes) + 1)
        return len(self.changes) if loss is Loss.NOTHING else 0


Node = Inode | Directory


def _apply(entries: dict[str, Node], change: tuple[str, str, Node | None]) -> None:
    name, renamed_from, node = change
    if renamed_from:
        entries.pop(renamed_from, None)
    if node is None:
        entries.pop(name, None)
    else:
        entries[name] = node


class MemoryFile:
    """An open file. It stays usable when its name is removed, as on Linux."""

    __slots__ = ("_disk", "_inode", "path")

    def __init__(self, disk: MemoryFileSystem, path: str, inode: Inode) -> None:
        self.path = path
        self._disk = disk
        self._inode = inode

    @property
    def size(self) -> int:
        return len(self._inode.data)

    def append(self, parts: Sequence[Buffer]) -> int:
        data = b"".join(parts)
        position = len(self._inode.data)
        try:
            end = position + len(data)
            taken = max(end, self._inode.reserved) - max(position, self._inode.reserved)
            self._disk.faults.check("append to", self.path, taken)
        except DiskError:
            # A part of it is written and truncated again; a crash may lose the truncation.
            self._inode.write(position, data[: len(data) // 2])
            self._inode.truncate(position)
            raise
        self._inode.write(position, data)
        self._disk.changed("append to", self.path)
        return position

    def read_at(self, position: int, size: int) -> bytes:
        self._disk.faults.check("read", self.path)
        self._disk.waited_for(self.path)
        return bytes(self._inode.data[position : position + size])

    def read_cached(self, position: int, size: int) -> bytes:
        if self.path in self._disk.cold:
            raise NotCached(self.path)
        return self.read_at(position, size)

    def read_into(self, position: int, buffer: memoryview) -> int:
        data = self.read_at(position, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def read_ahead(self, position: int, size: int) -> None:
        """Do nothing: memory needs no read-ahead."""

    def truncate(self, size: int) -> None:
        self._disk.faults.check("truncate", self.path)
        self._disk.faults.give_back(len(self._inode.data) - size)
        self._inode.truncate(size)
        self._disk.changed("truncate", self.path)

    def reserve(self, size: int) -> None:
        taken = max(size - max(len(self._inode.data), self._inode.reserved), 0)
        self._disk.faults.check("reserve", self.path, taken)
        self._inode.reserved = size

    def free_reserved(self) -> None:
        self._disk.faults.give_back(max(self._inode.reserved - len(self._inode.data), 0))
        self._inode.reserved = 0

    def begin_write_back(self, position: int, size: int) -> None:
        """Check for faults only: data that is written back may be lost all the same."""
        self._disk.faults.check("begin write back", self.path, size)

    def end_write_back(self, position: int, size: int) -> None:
        self._disk.faults.check("write back", self.path, size)

    def sync(self) -> None:
        self._disk.sync_inode(self.path, self._inode)

    def fileno(self) -> int:
        raise NotImplementedError("a file in memory has no descriptor")

    def sync_descriptor(self) -> None:
        return None

    def close(self) -> None:
        """Do nothing: there is no descriptor."""


class MemoryLock:
    """A lock among the users of one in-memory disk."""

    __slots__ = ("_held", "_path")

    def __init__(self, held: set[str], path: str) -> None:
        self._held = held
        self._path = path

    def release(self) -> None:
        self._held.discard(self._path)


class MemoryFileSystem:
    """The file system of one machine: `storage.files.files.FileSystem` in memory."""

    def __init__(self, root: Directory | None = None) -> None:
        self.on_operation: Callable[[str, str], None] | None = None
        """Called with action and path after every operation that changed the disk."""
        self.operations = 0
        """Number of operations that have changed the disk."""
        self.faults = Faults()
        self.cold: set[str] = set()
        """Files that are not in the page cache until a thread has waited for them."""
        self.waits: list[tuple[str, int]] = []
        """Each wait for a cold file, with the waiting thread."""
        self._root = root if root is not None else Directory()
        self._locks: set[str] = set()

    @whole
    def after_crash(self, loss: Loss, random: Random) -> MemoryFileSystem:
        """Returns the disk as a machine finds it after losing power now. This one does not change."""
        return MemoryFileSystem(self._root.after_crash(loss, random, {}))

    @whole
    def after_kill(self) -> MemoryFileSystem:
        """Returns the disk as another process finds it when this one is killed: the machine continues,
        so everything can be read, but what was not synced may still get lost."""
        return MemoryFileSystem(copy.deepcopy(self._root))

    def changed(self, action: str, path: str) -> None:
        """Count an operation and call the observer."""
        self.operations += 1
        if self.on_operation is not None:
            self.on_operation(action, path)

    def waited_for(self, path: str) -> None:
        """Note that a thread that may block has read the file."""
        if path in self.cold:
            self.cold.discard(path)
            self.waits.append((path, threading.get_ident()))

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        self.faults.check("open", path)
        if not create:
            return MemoryFile(self, path, self._file("open", path))
        directory, name = self._parent("open", path)
        if name in directory.entries:
            raise _error("open", path, errno.EEXIST)
        inode = Inode()
        directory.put(name, inode)
        self.changed("open", path)
        return MemoryFile(self, path, inode)

    def read_bytes(self, path: str) -> bytes:
        self.faults.check("read", path)
        return bytes(self._file("read", path).data)

    def write_bytes(self, path: str, data: bytes) -> None:
        self.faults.check("write", path, len(data))
        directory, name = self._parent("write", path)
        inode = directory.entries.get(name)
        if not isinstance(inode, Inode):
            inode = Inode()
            directory.put(name, inode)
            self.changed("open", path)
        if inode.data:
            self.faults.give_back(len(inode.data))
            inode.truncate(0)
        inode.write(0, bytes(data))
        self.changed("write", path)
        self.sync_inode(path, inode)

    def sync_inode(self, path: str, inode: Inode) -> None:
        """Make a file's bytes durable. If that fails, they never become durable."""
        try:
            self.faults.check("sync", path)
        except SyncFailed:
            inode.sync_failed()
            raise
        inode.sync()
        self.changed("sync", path)

    def replace_durably(self, path: str, data: bytes, *, secret: bool = False) -> None:
        self.write_bytes(f"{path}.tmp", data)
        self.rename(f"{path}.tmp", path)
        self.sync_directory(path.rpartition("/")[0])

    def write_in_place(self, path: str, data: bytes) -> None:
        self.faults.check("write in place", path)
        inode = self._file("write in place", path)
        inode.write(0, bytes(data))
        self.changed("write in place", path)
        self.sync_inode(path, inode)

    def rename(self, source: str, target: str) -> None:
        self.faults.check("rename", source)
        directory, name = self._parent("rename", source)
        target_directory, target_name = self._parent("rename", target)
        if name not in directory.entries:
            raise _error("rename", source, errno.ENOENT)
        replaced = target_directory.entries.get(target_name)
        if isinstance(replaced, Inode):
            self.faults.give_back(len(replaced.data))
        if directory is target_directory:
            directory.put(target_name, directory.entries[name], renamed_from=name)
        else:
            # A crash may leave the name in both directories or in none, which is worse than any
            # real disk.
            target_directory.put(target_name, directory.entries[name])
            directory.put(name, None)
        self.changed("rename", source)

    def link(self, source: str, target: str) -> None:
        self.faults.check("link", source)
        directory, name = self._parent("link", target)
        if name in directory.entries:
            raise _error("link", target, errno.EEXIST)
        directory.put(name, self._file("link", source))
        self.changed("link", target)

    def unlink(self, path: str) -> None:
        self.faults.check("unlink", path)
        directory, name = self._parent("unlink", path)
        inode = directory.entries.get(name)
        if not isinstance(inode, Inode):
            raise _error("unlink", path, errno.ENOENT)
        self.faults.give_back(max(len(inode.data), inode.reserved))
        directory.put(name, None)
        self.changed("unlink", path)

    def list(self, path: str) -> list[str]:
        self.faults.check("list", path)
        return sorted(self._directory("list", path).entries)

    def make_directory(self, path: str) -> None:
        self.faults.check("create", path)
        directory = self._root
        for name in path.strip("/").split("/"):
            with _tree:
                child = directory.entries.get(name)
                is_new = child is None
                if child is None:
                    child = Directory()
                    directory.put(name, child)
            if is_new:
                self.changed("create", path)
            if not isinstance(child, Directory):
                raise _error("create", path, errno.ENOTDIR)
            directory = child

    def remove_tree(self, path: str) -> None:
        self.faults.check("remove", path)
        if self.exists(path):
            directory, name = self._parent("remove", path)
            directory.put(name, None)
            self.changed("remove", path)

    def sync_directory(self, path: str) -> None:
        self.faults.check("sync", path)
        self._directory("open", path).sync()
        self.changed("sync", path)

    def sync_all(self, path: str) -> None:
        self.faults.check("sync all of", path)
        self._directory("sync all of", path)
        self._root.sync_all()
        self.changed("sync", path)

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def is_plain_file(self, path: str) -> bool:
        return self.identity(path).names_count == 1

    def identity(self, path: str) -> FileIdentity:
        inode = self._file("stat", path)
        return FileIdentity((0, id(inode)), self._root.names_count(inode), len(inode.data))

    def size(self, path: str) -> int:
        return len(self._file("stat", path).data)

    def modified_ns(self, path: str) -> int:
        return self._file("stat", path).modified_ns

    def free_bytes(self, path: str) -> int:
        self.faults.check("stat", path)
        return 1 << 40 if self.faults.space is None else self.faults.space

    def volume_bytes(self, path: str) -> int:
        self.faults.check("stat", path)
        return 1 << 41

    def lock(self, path: str) -> MemoryLock:
        if path in self._locks:
            raise DirectoryLocked(path.rpartition("/")[0])
        if not self.exists(path):
            self.open(path, create=True)
        self._locks.add(path)
        return MemoryLock(self._locks, path)

    def restrict(self, path: str) -> None:
        """This disk has one user."""

    def forget_cached(self, path: str) -> None:
        self.faults.check("sync", path)
        self._directory("sync", path).forget_cached()

    def vanish(self, path: str) -> None:
        """Make a directory disappear, like a lost mount; open files keep working."""
        directory, name = self._parent("open", path)
        directory.put(name, None)
        directory.sync()

    def overwrite(self, path: str, position: int, data: bytes) -> None:
        """Damage a file durably and silently, like a failing disk."""
        inode = self._file("open", path)
        inode.sync()
        inode.write(position, data)
        inode.sync()

    # ---------------------------------------------------------------- the tree

    def _find(self, path: str) -> Node | None:
        node: Node | None = self._root
        for name in _names_in(path):
            if not isinstance(node, Directory):
                return None
            node = node.entries.get(name)
        return node

    def _file(self, action: str, path: str) -> Inode:
        node = self._find(path)
        if node is None:
            raise _error(action, path, errno.ENOENT)
        if isinstance(node, Directory):
            raise _error(action, path, errno.EISDIR)
        return node

    def _directory(self, action: str, path: str) -> Directory:
        node = self._find(path) if path.strip("/") else self._root
        if not isinstance(node, Directory):
            raise _error(action, path, errno.ENOENT if node is None else errno.ENOTDIR)
        return node

    def _parent(self, action: str, path: str) -> tuple[Directory, str]:
        parent, _, name = path.rpartition("/")
        return self._directory(action, parent), name


@lru_cache(maxsize=1024)
def _names_in(path: str) -> Sequence[str]:
    return tuple(path.strip("/").split("/"))


def _error(action: str, path: str, number: int) -> Exception:
    return disk_error(action, path, OSError(number, os.strerror(number)))
