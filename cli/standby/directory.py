"""A standby's directory: who it is, which cluster it follows, and that one process uses it.

DIR/standby.properties     version=1
                           directory.id=<22 characters>    how leaders tell their followers apart
                           cluster.id=<text>               once it has followed a leader
DIR/metadata/              the copy of the metadata's log and snapshots (docs/design/replog.md)
DIR/<topic>.<topic id>/    the copies of the coordinators' partitions (`partition_copy.py`), as in a
                           broker's log directory
DIR/.lock                  held while the standby runs
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from storage.files.errors import DamagedFile, ForeignDirectory, FormatFromTheFuture
from storage.files.files import FileSystem, Lock
from storage.files.paths import (
    LOCK,
    META_PROPERTIES,
    METADATA,
    PROMOTION,
    STANDBY,
    STANDBY_PROPERTIES,
    join,
    topic_id_text,
)

VERSION = 1


@dataclass(slots=True, kw_only=True)
class StandbyDirectory:
    """An opened directory. `close` releases it."""

    files: FileSystem
    path: str
    directory_id: uuid.UUID
    cluster_id: str | None
    """The cluster that it follows; None until it has followed a leader."""
    lock: Lock

    @property
    def metadata_path(self) -> str:
        """Where the copy is."""
        return join(self.path, METADATA)

    def join_cluster(self, cluster_id: str) -> None:
        """Remember, durably, which cluster it follows.

        Raises:
            ForeignDirectory: it follows another one.
        """
        if self.cluster_id is None:
            _write(self.files, self.path, self.directory_id, cluster_id)
            self.cluster_id = cluster_id
        if self.cluster_id != cluster_id:
            raise ForeignDirectory(
                f"{self.path} follows cluster {self.cluster_id}, and the leader is of cluster"
                f" {cluster_id}: give another --of, or another --data for this cluster"
            )

    def close(self) -> None:
        """Let another process use it."""
        self.lock.release()


def open_directory(files: FileSystem, path: str) -> StandbyDirectory:
    """Open a standby's directory, creating it if it is new.

    Raises:
        DirectoryLocked: another process uses it.
        ForeignDirectory: it is a broker's, or it has other files.
        DamagedFile, FormatFromTheFuture: who it is cannot be read.
        DiskError: the disk failed.
    """
    _check_usable(files, path)
    if not files.exists(path):
        files.make_directory(path)
    lock = files.lock(join(path, LOCK))
    try:
        # Again: the process that had the lock may have been a broker.
        _check_usable(files, path)
        directory_id, cluster_id = _identity(files, path)
        metadata = join(path, METADATA)
        if not files.exists(metadata):
            files.make_directory(metadata)
            files.sync_directory(path)
    except BaseException:
        lock.release()
        raise
    return StandbyDirectory(
        files=files, path=path, directory_id=directory_id, cluster_id=cluster_id, lock=lock
    )


def check_whole(files: FileSystem, path: str, *, may_rejoin: bool) -> bool:
    """Check that a directory is new, or that of a standby of a whole broker.

    Args:
        may_rejoin: whether it may also be a broker's, which then becomes a standby's.

    Returns whether it is a broker's.

    Raises:
        ForeignDirectory: it is a broker's, or a standby's that is being promoted, or has other files, or
            is to rejoin and is empty.
        DiskError: the disk failed.
    """
    names = set(files.list(path)) if files.exists(path) else set()
    if PROMOTION in names:
        raise ForeignDirectory(
            f"{path} is being promoted: kompakt serve finishes that and serves it"
        )
    if may_rejoin and not names:
        raise ForeignDirectory(
            f"{path} is no broker's data directory: give its --data, or leave out --rejoin for a new"
            " standby"
        )
    if STANDBY in names or not names:
        return False
    if META_PROPERTIES in names:
        if may_rejoin:
            return True
        raise ForeignDirectory(
            f"{path} is a broker's data directory: give another --data, or --rejoin if that broker is to"
            " follow the one that has taken over from it"
        )
    if STANDBY_PROPERTIES in names:
        raise ForeignDirectory(
            f"{path} is a standby's directory with metadata only: give another --data, or"
            " --metadata-only"
        )
    raise ForeignDirectory(f"{path} is not empty ({min(names)}): give another --data")


def _check_usable(files: FileSystem, path: str) -> None:
    names = set(files.list(path)) if files.exists(path) else set()
    if META_PROPERTIES in names:
        raise ForeignDirectory(f"{path} is a broker's data directory: give another --data")
    if STANDBY_PROPERTIES not in names and names - {LOCK, METADATA}:
        other = min(names - {LOCK, METADATA})
        raise ForeignDirectory(
            f"{path} is no standby's directory, and it is not empty ({other}): give another --data"
        )
    if STANDBY_PROPERTIES not in names and METADATA in names and files.list(join(path, METADATA)):
        raise ForeignDirectory(
            f"{path} has metadata, and {STANDBY_PROPERTIES} is missing: restore it, or give an"
            " empty --data"
        )


def _identity(files: FileSystem, path: str) -> tuple[uuid.UUID, str | None]:
    file = join(path, STANDBY_PROPERTIES)
    if not files.exists(file):
        directory_id = uuid.uuid4()
        _write(files, path, directory_id, None)
        return directory_id, None
    pairs = _pairs(files.read_bytes(file), file)
    try:
        version = int(pairs["version"])
        if version > VERSION:
            raise FormatFromTheFuture(file, version, VERSION)
        return uuid.UUID(hex=pairs["directory.id"]), pairs.get("cluster.id")
    except (KeyError, ValueError) as error:
        raise DamagedFile(file, f"it lacks {error}") from error


def _pairs(data: bytes, file: str) -> Mapping[str, str]:
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError as error:
        raise DamagedFile(file, "it is not text") from error
    return dict(line.strip().partition("=")[::2] for line in lines if line.strip())


def _write(files: FileSystem, path: str, directory_id: uuid.UUID, cluster_id: str | None) -> None:
    lines = [f"version={VERSION}", f"directory.id={directory_id.hex}"]
    if cluster_id is not None:
        lines.append(f"cluster.id={cluster_id}")
    files.replace_durably(
        join(path, STANDBY_PROPERTIES), "".join(f"{line}\n" for line in lines).encode()
    )


def leader_name(directory_id: uuid.UUID) -> str:
    """Returns how a leader names this follower."""
    return topic_id_text(directory_id)
