"""The index of a backup: the snapshot that it is a copy of, and every file of it.

    {"checksum": "<64 hexadecimal digits>", "index": {
        "format": 1,
        "snapshot": {...},                       as storage/snapshots/descriptor.py has it
        "files": [{"path": "<directory id>/<path in the log directory>", "size": ...,
                   "sha256": "<64 hexadecimal digits>", "modified_ns": ...}, ...]}}

The checksum is the SHA-256 of the value of `index`, as its bytes stand in the file. A file's bytes are
in the object with the name of its SHA-256. The index is written last: a backup without it does not
exist. It has the secrets of the snapshot.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated

import msgspec
from msgspec import Meta, Raw, Struct

from storage.files.errors import DamagedFile, FormatFromTheFuture
from storage.snapshots.descriptor import (
    Natural,
    PartitionInSnapshot,
    SnapshotDescriptor,
    TopicInSnapshot,
    contradiction,
)

FORMAT = 1

Sha256 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
# Paths of a restored data directory are made of these texts, so nothing may lead out of it.
FilePath = Annotated[
    str,
    Meta(
        pattern=r"^[0-9A-Za-z_-]{22}/([0-9A-Za-z._-]{1,223}/\d+/)?[0-9A-Za-z][0-9A-Za-z._-]{0,99}\Z"
    ),
]


class FileInBackup(Struct, frozen=True, kw_only=True, gc=False):
    """One file of the snapshot."""

    path: FilePath
    """The id of its log directory, and its path in there."""
    size: Natural
    sha256: Sha256
    modified_ns: int
    """When the broker changed it last."""

    @property
    def directory(self) -> str:
        """The id of its log directory."""
        return self.path.partition("/")[0]

    @property
    def place(self) -> str:
        """Its path in the log directory."""
        return self.path.partition("/")[2]


class BackupIndex(Struct, frozen=True, kw_only=True):
    """The contents of the file."""

    format: Natural = FORMAT
    snapshot: SnapshotDescriptor
    files: list[FileInBackup]

    @property
    def id(self) -> str:
        """The id of the backup: that of its snapshot."""
        return self.snapshot.id

    def logs(self) -> Iterator[LogInBackup]:
        """Yields the logs of its snapshot, with their files."""
        by_directory: dict[str, dict[str, FileInBackup]] = {}
        for file in self.files:
            directory, _, name = file.path.rpartition("/")
            by_directory.setdefault(directory, {})[name] = file
        for topic in self.snapshot.topics:
            for partition in topic.partitions:
                path = log_path(topic, partition)
                files = by_directory.get(path, {})
                yield LogInBackup(topic=topic, partition=partition, path=path, files=files)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogInBackup:
    """A partition's log in a backup."""

    topic: TopicInSnapshot
    partition: PartitionInSnapshot
    path: str
    """Of its directory in the backup."""
    files: Mapping[str, FileInBackup]
    """By name."""


class _Format(Struct):
    format: Natural


class _Checked(Struct):
    checksum: Sha256
    index: Raw


def log_path(topic: TopicInSnapshot, partition: PartitionInSnapshot) -> str:
    """Returns the path of a log's directory in a backup."""
    return f"{partition.directory}/{topic.directory_name}/{partition.partition}"


def encode(index: BackupIndex) -> bytes:
    """Returns the bytes of the file."""
    content = msgspec.json.encode(index)
    checksum = hashlib.sha256(content).hexdigest()
    return msgspec.json.encode(_Checked(checksum=checksum, index=Raw(content)))


def decode(data: bytes, path: str) -> BackupIndex:
    """Decode and check the file; `path` is for messages only.

    Raises:
        FormatFromTheFuture: a later release wrote it in a format that this one cannot read.
        DamagedFile: it is no index, its checksum differs, or it contradicts itself.
    """
    try:
        checked = msgspec.json.decode(data, type=_Checked)
        content = bytes(checked.index)
        # The checksum comes first, so that a flipped bit is never mistaken for a later release.
        if hashlib.sha256(content).hexdigest() != checked.checksum:
            raise DamagedFile(path, "its checksum differs")
        found = msgspec.json.decode(content, type=_Format).format
        if found > FORMAT:
            raise FormatFromTheFuture(path, found, FORMAT)
        index = msgspec.json.decode(content, type=BackupIndex)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DamagedFile(path, str(error)) from error
    if reason := contradiction(index.snapshot) or _contradiction(index):
        raise DamagedFile(path, reason)
    return index


def _contradiction(index: BackupIndex) -> str | None:
    if len({file.path for file in index.files}) != len(index.files):
        return "it lists a file twice"
    directories = {each.id for each in index.snapshot.directories}
    directories |= {log.path for log in index.logs()}
    for file in index.files:
        if file.path.rpartition("/")[0] not in directories:
            return f"it lists {file.path}, which is in none of its logs and log directories"
    return None
