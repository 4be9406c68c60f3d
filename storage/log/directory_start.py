"""The start of a run in a log directory: its own files, and what the last run has left.

meta.properties    whose directory it is; written once
hash.key           the secret under which keys are hashed; written once
start-counter      the leader epoch of this run: one more than that of the last
.clean-shutdown    gone from now on, until the next clean stop
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from protocol.wire.numbers import Epoch
from storage.files.errors import DamagedFile, DiskError, MissingFile, NoSpace
from storage.files.files import FileSystem
from storage.files.paths import (
    CLEAN_SHUTDOWN,
    HASH_KEY,
    LEASES,
    META_PROPERTIES,
    START_COUNTER,
    SYNC_FAILED,
    join,
    parse_topic_directory,
)
from storage.formats.meta_properties import MetaProperties, read_meta_properties
from storage.recovery.start_reserve import release_reserve

_log = logging.getLogger("storage.log.directory_start")

HASH_KEY_BYTES = 16


@dataclass(frozen=True, slots=True)
class StartedDirectory:
    """What a run knows of its directory."""

    meta: MetaProperties
    hash_key: bytes
    leader_epoch: Epoch
    was_clean: bool
    """Whether the last run stopped cleanly."""


def start_directory(
    fs: FileSystem,
    path: str,
    new_meta: MetaProperties,
    random_bytes: Callable[[int], bytes],
) -> StartedDirectory:
    """Start a run in a locked directory. Raises like `LogDirectory`."""
    release_reserve(fs, path)
    _drop_cache_after_failed_sync(fs, path)
    started = StartedDirectory(
        meta=_label(fs, path, new_meta),
        hash_key=_secret(fs, path, random_bytes),
        leader_epoch=Epoch(_count_start(fs, path)),
        was_clean=_remove_clean_marker(fs, path),
    )
    _remove_leases(fs, path)
    return started


def make_durably(fs: FileSystem, path: str) -> None:
    """Create a directory and those above it; all new names are durable when this returns."""
    if path in ("", "/") or fs.exists(path):
        return
    parent = path.rstrip("/").rpartition("/")[0]
    above = parent or ("/" if path.startswith("/") else ".")
    if parent:
        make_durably(fs, parent)
    fs.make_directory(path)
    fs.sync_directory(above)


def any_topic(fs: FileSystem, directory: str) -> str | None:
    """Returns the path of any topic's directory, even if no log is open; None if there is none.

    Raises:
        DiskError: the disk failed.
    """
    topics = (name for name in fs.list(directory) if parse_topic_directory(name) is not None)
    return next((join(directory, name) for name in topics), None)


def _drop_cache_after_failed_sync(fs: FileSystem, path: str) -> None:
    """Read only from the disk: the page cache has bytes that the failed sync did not write.

    Recovery would find them, sync nothing, and promise them; a power cut would then lose them.
    """
    mark = join(path, SYNC_FAILED)
    if fs.exists(mark):
        _log.warning("%s: a sync failed in the last run; reading all from the disk", path)
        fs.forget_cached(path)
        fs.unlink(mark)
        fs.sync_directory(path)


def _label(fs: FileSystem, path: str, new_meta: MetaProperties) -> MetaProperties:
    found = read_meta_properties(fs, path)
    if found is None:
        _refuse_to_lose(fs, path, META_PROPERTIES)
        fs.replace_durably(join(path, META_PROPERTIES), new_meta.encode())
        return new_meta
    found.check(path, cluster_id=new_meta.cluster_id, node_id=new_meta.node_id)
    return found


def _secret(fs: FileSystem, directory: str, random_bytes: Callable[[int], bytes]) -> bytes:
    path = join(directory, HASH_KEY)
    try:
        key = fs.read_bytes(path)
    except MissingFile:
        key = random_bytes(HASH_KEY_BYTES)
        fs.replace_durably(path, key, secret=True)
    if len(key) != HASH_KEY_BYTES:
        raise DamagedFile(path, f"it has {len(key)} bytes instead of {HASH_KEY_BYTES}")
    return key


def _count_start(fs: FileSystem, directory: str) -> int:
    """Increment the start counter and return it: no two runs stamp the same leader epoch."""
    path = join(directory, START_COUNTER)
    try:
        starts = int(fs.read_bytes(path)) + 1
    except MissingFile:
        _refuse_to_lose(fs, directory, START_COUNTER)
        starts = 0
    except ValueError as error:
        raise DamagedFile(path, "it does not hold a number") from error
    data = f"{starts}\n".encode()
    try:
        fs.replace_durably(path, data)
    except NoSpace:
        if starts == 0:
            raise
        fs.write_in_place(path, data)
    return starts


def _refuse_to_lose(fs: FileSystem, directory: str, name: str) -> None:
    """Refuse to create a file again that a directory with topics must have."""
    topic = any_topic(fs, directory)
    if topic is not None:
        raise DamagedFile(join(directory, name), f"it is missing, although {topic} exists")


def _remove_leases(fs: FileSystem, directory: str) -> None:
    """Remove files that others wrote under leases: a lease ends with the process that gave it."""
    path = join(directory, LEASES)
    if fs.exists(path):
        try:
            fs.remove_tree(path)
        except DiskError as error:
            _log.warning("cannot remove the files written under leases: %s", error)


def _remove_clean_marker(fs: FileSystem, directory: str) -> bool:
    """Returns whether the last stop was clean. Removes the marker before anything is written."""
    path = join(directory, CLEAN_SHUTDOWN)
    if not fs.exists(path):
        return False
    fs.unlink(path)
    fs.sync_directory(directory)
    return True


def raise_start_counter(fs: FileSystem, directory: str, epoch: Epoch) -> None:
    """Count the epochs up to `epoch + 1` as used, durably: the next start leads with a later one.

    Batches that another broker wrote have `epoch`; a log of this run may lead with the one after it.

    Raises:
        DiskError: it cannot be written; batches of that epoch must not be appended.
    """
    path = join(directory, START_COUNTER)
    if int(fs.read_bytes(path)) <= epoch:
        fs.replace_durably(path, f"{epoch + 1}\n".encode())
