"""The log directories of a broker that change, and snapshots of them.

The logs have arbitrary bytes and sound manifests: enough for what copies files and reads no records.
`contents` has the bytes of each snapshot, by the path of a file in a backup.
"""

from __future__ import annotations

import itertools
import uuid
from dataclasses import dataclass, field
from random import Random

from protocol.wire.numbers import Offset
from server.topics.keys import topic_value
from server.topics.names import parse_id
from storage.files.files import FileSystem
from storage.files.paths import (
    HASH_KEY,
    LOG,
    MANIFEST,
    META_PROPERTIES,
    OFFSET_INDEX,
    SNAPSHOT_DESCRIPTOR,
    SNAPSHOTS,
    START_COUNTER,
    segment_file,
    topic_directory,
    topic_id_text,
)
from storage.formats.manifest import Manifest, SegmentRow, encode
from storage.formats.meta_properties import MetaProperties
from storage.snapshots.descriptor import (
    DirectoryInSnapshot,
    PartitionInSnapshot,
    SnapshotDescriptor,
    TopicInSnapshot,
)
from storage.snapshots.descriptor import encode as encode_descriptor

CLUSTER_ID, NODE_ID = "C" * 22, 1
DIRECTORIES = {"A" * 22: "/disk1/data", "B" * 22: "/disk2/data"}
"""The path of each log directory by its id; the first one has the metadata."""
CREATED_MS = 1_796_000_000_000
"""When the first snapshot is made; each is made a second after the one before."""


@dataclass
class Segment:
    """A segment with one record for each byte."""

    base_offset: int
    version: int
    data: bytes

    @property
    def end_offset(self) -> int:
        return self.base_offset + len(self.data)


@dataclass
class ChangingLog:
    """A log, and where it is."""

    topic: str
    topic_id: uuid.UUID
    partition: int
    directory: str
    """The id of its log directory."""
    version: int = 1
    segments: list[Segment] = field(default_factory=lambda: [Segment(0, 1, b"")])

    @property
    def place(self) -> str:
        return f"{topic_directory(self.topic, self.topic_id)}/{self.partition}"

    def manifest(self) -> bytes:
        rows = [
            SegmentRow(
                base_offset=Offset(each.base_offset),
                file_version=each.version,
                end_offset=Offset(each.end_offset),
                size=len(each.data),
            )
            for each in self.segments
        ]
        return encode(
            Manifest(
                version=self.version,
                generation=0,
                topic_id=self.topic_id,
                partition=self.partition,
                log_start_offset=Offset(self.segments[0].base_offset),
                clean_offset=Offset(0),
                segments=tuple(rows),
            )
        )

    def append(self, data: bytes) -> None:
        self.segments[-1].data += data

    def roll(self) -> None:
        self.version += 1
        self.segments.append(Segment(self.segments[-1].end_offset, self.version, b""))

    def clean(self, number: int, random: Random) -> None:
        """Replace a sealed segment by one of the same offsets and other bytes."""
        old = self.segments[number]
        self.version += 1
        data = random.randbytes(len(old.data))
        self.segments[number] = Segment(old.base_offset, self.version, data)

    def retain(self) -> None:
        if len(self.segments) > 1:
            del self.segments[0]


class SnapshotWorld:
    """Changes logs and makes snapshots of them on a file system, below `root`."""

    def __init__(self, fs: FileSystem, random: Random, *, root: str = "") -> None:
        self.fs = fs
        self.random = random
        self.directories = {each: root + path for each, path in DIRECTORIES.items()}
        self.logs: list[ChangingLog] = []
        self.contents: dict[str, dict[str, bytes]] = {}
        self._numbers = itertools.count(1)
        for directory_id, path in self.directories.items():
            fs.make_directory(path)
            meta = MetaProperties(cluster_id=CLUSTER_ID, node_id=NODE_ID, directory_id=directory_id)
            fs.write_bytes(f"{path}/{META_PROPERTIES}", meta.encode())
            fs.write_bytes(f"{path}/{HASH_KEY}", directory_id.encode()[:16])
            fs.write_bytes(f"{path}/{START_COUNTER}", b"7\n")

    def create_topic(self, name: str, partitions: int = 2) -> None:
        topic_id = uuid.UUID(int=self.random.getrandbits(128))
        for number, directory in zip(
            range(partitions), itertools.cycle(self.directories), strict=False
        ):
            log = ChangingLog(name, topic_id, number, directory)
            self.fs.make_directory(self._live(log))
            self.logs.append(log)
            self._write(log)

    def delete_topic(self, name: str) -> None:
        for log in [each for each in self.logs if each.topic == name]:
            self.fs.remove_tree(self._live(log))
            self.logs.remove(log)

    def change(self) -> None:
        """Do something to a random log."""
        if not self.logs:
            return
        log = self.random.choice(self.logs)
        match self.random.randrange(4):
            case 0:
                log.roll()
            case 1 if len(log.segments) > 1:
                log.clean(self.random.randrange(len(log.segments) - 1), self.random)
            case 2:
                log.retain()
            case _:
                log.append(self.random.randbytes(self.random.randrange(1, 3000)))
        self._write(log)

    def snapshot(self) -> str:
        """Make a snapshot. Returns the path of its snapshot.json."""
        number = next(self._numbers)
        snapshot_id = f"20261130T{number:06}-7f3a"
        contents = self.contents[snapshot_id] = {}
        for directory_id, path in self.directories.items():
            root = f"{path}/{SNAPSHOTS}/{snapshot_id}"
            self.fs.make_directory(root)
            for name in (META_PROPERTIES, HASH_KEY, START_COUNTER):
                contents[f"{directory_id}/{name}"] = data = self.fs.read_bytes(f"{path}/{name}")
                self.fs.write_bytes(f"{root}/{name}", data)
        for log in self.logs:
            self._link(log, snapshot_id, contents)
        first = next(iter(self.directories.values()))
        target = f"{first}/{SNAPSHOTS}/{snapshot_id}/{SNAPSHOT_DESCRIPTOR}"
        self.fs.write_bytes(target, encode_descriptor(self._descriptor(snapshot_id, number)))
        return target

    def _live(self, log: ChangingLog) -> str:
        return f"{self.directories[log.directory]}/{log.place}"

    def _write(self, log: ChangingLog) -> None:
        """Write the files that have changed, and remove those that the log no longer has."""
        folder, files = self._live(log), self._files(log)
        there = self.fs.list(folder)
        for name in there:
            if name not in files:
                self.fs.unlink(f"{folder}/{name}")
        for name, data in files.items():
            if name not in there or self.fs.read_bytes(f"{folder}/{name}") != data:
                self.fs.replace_durably(f"{folder}/{name}", data)

    def _files(self, log: ChangingLog) -> dict[str, bytes]:
        files = {MANIFEST: log.manifest()}
        for each in log.segments:
            files[segment_file(each.base_offset, each.version, LOG)] = each.data
            # Many files of a broker have the same bytes.
            files[segment_file(each.base_offset, each.version, OFFSET_INDEX)] = b""
        return files

    def _link(self, log: ChangingLog, snapshot_id: str, contents: dict[str, bytes]) -> None:
        folder = self._live(log)
        target = f"{self.directories[log.directory]}/{SNAPSHOTS}/{snapshot_id}/{log.place}"
        self.fs.make_directory(target)
        for name in self.fs.list(folder):
            self.fs.link(f"{folder}/{name}", f"{target}/{name}")
            path = f"{log.directory}/{log.place}/{name}"
            contents[path] = self.fs.read_bytes(f"{folder}/{name}")

    def _descriptor(self, snapshot_id: str, number: int) -> SnapshotDescriptor:
        topics: dict[str, TopicInSnapshot] = {}
        for log in self.logs:
            text = topic_id_text(log.topic_id)
            topic = topics.setdefault(
                log.topic, TopicInSnapshot(name=log.topic, id=text, partitions=[])
            )
            topic.partitions.append(
                PartitionInSnapshot(
                    partition=log.partition,
                    directory=log.directory,
                    start_offset=log.segments[0].base_offset,
                    end_offset=log.segments[-1].end_offset,
                    bytes=sum(len(each.data) for each in log.segments),
                )
            )
        return SnapshotDescriptor(
            id=snapshot_id,
            created_ms=CREATED_MS + 1000 * number,
            cluster_id=CLUSTER_ID,
            node_id=NODE_ID,
            directories=[
                DirectoryInSnapshot(id=each, path=path, has_metadata=number == 0)
                for number, (each, path) in enumerate(self.directories.items())
            ],
            topics=list(topics.values()),
            cluster={
                f"/topics/{name}": topic_value(parse_id(topic.id), len(topic.partitions), {})
                for name, topic in topics.items()
            },
            node={},
        )
