"""`snapshot.json`: what a snapshot has. It is written last: a snapshot without it is not complete.

    {"format": 1, "id": "20261130T041500-7f3a", "created_ms": ..., "at_ms": null,
     "cluster_id": "...", "node_id": ...,
     "directories": [{"id": "<directory id>", "path": "/abs/log/dir", "has_metadata": true}, ...],
     "topics": [{"name": "...", "id": "<topic id>", "partitions": [
         {"partition": 0, "directory": "<directory id>", "start_offset": ..., "end_offset": ...,
          "bytes": ...}, ...]}, ...],
     "cluster": {"<key>": "<value>", ...},
     "node": {"<key>": "<value>", ...}}

`cluster` and `node` are the entries of the two metadata stores at the moment of the cut, without those
attached to a lease. They have secrets, such as the verifiers of passwords, so only the file's owner may
read it. A later release may add fields, which a reader skips; `format` changes only if an older
reader would misread the file.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from storage.files.errors import DamagedFile, FormatFromTheFuture
from storage.files.paths import topic_directory_of_text

FORMAT = 1

Natural = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]

# Names of files are made of these texts, so nothing else may be in them.
SnapshotId = Annotated[str, Meta(pattern=r"^[0-9A-Za-z][0-9A-Za-z-]{0,63}\Z")]
Uuid = Annotated[str, Meta(pattern=r"^[0-9A-Za-z_-]{22}\Z")]
TopicName = Annotated[str, Meta(pattern=r"^(?!\.{1,2}\Z)[0-9A-Za-z._-]{1,249}\Z")]


class DirectoryInSnapshot(Struct, frozen=True, kw_only=True):
    """A log directory."""

    id: Uuid
    """As its meta.properties has it."""
    path: Annotated[str, Meta(pattern="^/")]
    """Where it was, an absolute path."""
    has_metadata: bool
    """Whether it is the metadata directory."""


class PartitionInSnapshot(Struct, frozen=True, kw_only=True):
    """A partition's log: the records at [start_offset, end_offset)."""

    partition: Natural
    directory: Uuid
    """The id of the log directory that has the log."""
    start_offset: Natural
    end_offset: Natural
    bytes: Natural
    """The size of its segments' records."""


class TopicInSnapshot(Struct, frozen=True, kw_only=True):
    """A topic, with the partitions whose logs are in the snapshot."""

    name: TopicName
    id: Uuid
    partitions: list[PartitionInSnapshot]

    @property
    def directory_name(self) -> str:
        """The name of its directory, in each log directory that has a log of it."""
        return topic_directory_of_text(self.name, self.id)


class SnapshotDescriptor(Struct, frozen=True, kw_only=True):
    """The contents of the file."""

    format: Natural = FORMAT
    id: SnapshotId
    created_ms: Natural
    """The wall time of the cut."""
    at_ms: Natural | None = None
    """The earlier time as which the topics are kept; None: that of the cut."""
    cluster_id: str
    node_id: Natural
    directories: list[DirectoryInSnapshot]
    """Exactly one of them has the metadata."""
    topics: list[TopicInSnapshot]
    cluster: dict[str, str]
    """All entries of the cluster's metadata store, by key."""
    node: dict[str, str]
    """All entries of the node's metadata store, by key."""

    @property
    def as_of_ms(self) -> int:
        """The wall time as of which the topics are kept."""
        return self.created_ms if self.at_ms is None else self.at_ms

    def metadata_directory(self) -> DirectoryInSnapshot:
        """Returns the directory that has the metadata."""
        return next(each for each in self.directories if each.has_metadata)


class _Format(Struct):
    format: Natural


def encode(descriptor: SnapshotDescriptor) -> bytes:
    """Returns the bytes of the file."""
    return msgspec.json.encode(descriptor)


def decode(data: bytes, path: str) -> SnapshotDescriptor:
    """Decode and check the file; `path` is for messages only.

    Raises:
        FormatFromTheFuture: a later release wrote it in a format that this one cannot read.
        DamagedFile: it is no descriptor, or contradicts itself.
    """
    try:
        found = msgspec.json.decode(data, type=_Format).format
        if found > FORMAT:
            raise FormatFromTheFuture(path, found, FORMAT)
        descriptor = msgspec.json.decode(data, type=SnapshotDescriptor)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DamagedFile(path, str(error)) from error
    if reason := contradiction(descriptor):
        raise DamagedFile(path, reason)
    return descriptor


def contradiction(descriptor: SnapshotDescriptor) -> str | None:
    """Returns what in a descriptor cannot be; None if nothing is wrong."""
    directories = [each.id for each in descriptor.directories]
    if len(set(directories)) != len(directories):
        return "two of its directories have the same id"
    if sum(each.has_metadata for each in descriptor.directories) != 1:
        return "not exactly one of its directories has the metadata"
    names = [topic.name for topic in descriptor.topics]
    ids = [topic.id for topic in descriptor.topics]
    if len(set(names)) != len(names) or len(set(ids)) != len(ids):
        return "it lists a topic twice"
    known = set(directories)
    reasons = (_wrong_in(topic, known) for topic in descriptor.topics)
    return next((reason for reason in reasons if reason), None)


def _wrong_in(topic: TopicInSnapshot, directories: set[str]) -> str | None:
    numbers = {each.partition for each in topic.partitions}
    if len(numbers) != len(topic.partitions):
        return f"it lists a partition of {topic.name} twice"
    for each in topic.partitions:
        if each.directory not in directories:
            return f"{topic.name}-{each.partition} is in {each.directory}, which it does not list"
        if each.start_offset > each.end_offset:
            return f"{topic.name}-{each.partition} ends before it starts"
    return None
