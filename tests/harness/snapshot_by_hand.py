"""A snapshot of a cleanly stopped data directory, made by hand in the layout of a broker's snapshots.

A broker makes hard links of files that nobody changes. Here files to which the next run of the broker
appends are copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from server.metadata.log import read_machine
from storage.files.files import FileSystem
from storage.files.paths import (
    ABORTED_TRANSACTIONS,
    CLEAN_SHUTDOWN,
    HASH_KEY,
    LEADER_EPOCH_CHECKPOINT,
    MANIFEST,
    META_PROPERTIES,
    METADATA,
    NODE_METADATA,
    SIGNING_KEY,
    SNAPSHOT_DESCRIPTOR,
    SNAPSHOTS,
    START_COUNTER,
    join,
    parse_segment_file,
    parse_snapshot_file,
    parse_topic_directory,
    topic_id_text,
)
from storage.formats.manifest import Manifest
from storage.formats.manifest import decode as decode_manifest
from storage.formats.meta_properties import MetaProperties, read_meta_properties
from storage.snapshots.descriptor import (
    DirectoryInSnapshot,
    PartitionInSnapshot,
    SnapshotDescriptor,
    TopicInSnapshot,
    encode,
)

OWN = (META_PROPERTIES, HASH_KEY, SIGNING_KEY, START_COUNTER)


def stored_entries(fs: FileSystem, directory: str, store: str) -> dict[str, str]:
    """Returns the entries of a metadata store, if it exists, that are attached to no lease."""
    if not fs.exists(join(directory, store)):
        return {}
    entries = read_machine(fs, join(directory, store)).entries
    return {key: entry.value for key, entry in entries.items() if not entry.lease}


def snapshot_by_hand(
    fs: FileSystem, directories: Sequence[str], snapshot_id: str, *, created_ms: int
) -> str:
    """Make a snapshot of log directories, the first of which has the metadata.

    Returns the path of its snapshot.json.
    """
    topics: dict[str, TopicInSnapshot] = {}
    found: list[DirectoryInSnapshot] = []
    metas = [_meta(fs, directory) for directory in directories]
    for number, (directory, meta) in enumerate(zip(directories, metas, strict=True)):
        assert fs.exists(join(directory, CLEAN_SHUTDOWN))
        found.append(
            DirectoryInSnapshot(id=meta.directory_id, path=directory, has_metadata=number == 0)
        )
        root = f"{directory}/{SNAPSHOTS}/{snapshot_id}"
        fs.make_directory(root)
        for name in OWN:
            if fs.exists(join(directory, name)):
                fs.write_bytes(join(root, name), fs.read_bytes(join(directory, name)))
        for topic, partition in _logs(fs, directory, root, meta):
            known = topics.setdefault(topic.name, topic)
            known.partitions.append(partition)
    first = directories[0]
    descriptor = SnapshotDescriptor(
        id=snapshot_id,
        created_ms=created_ms,
        cluster_id=metas[0].cluster_id,
        node_id=metas[0].node_id,
        directories=found,
        topics=list(topics.values()),
        cluster=stored_entries(fs, first, METADATA),
        node=stored_entries(fs, first, NODE_METADATA),
    )
    path = f"{first}/{SNAPSHOTS}/{snapshot_id}/{SNAPSHOT_DESCRIPTOR}"
    fs.write_bytes(path, encode(descriptor))
    return path


def _meta(fs: FileSystem, directory: str) -> MetaProperties:
    meta = read_meta_properties(fs, directory)
    assert meta is not None
    return meta


def _logs(
    fs: FileSystem, directory: str, root: str, meta: MetaProperties
) -> Iterator[tuple[TopicInSnapshot, PartitionInSnapshot]]:
    for name in fs.list(directory):
        topic_id = parse_topic_directory(name)
        if topic_id is None:
            continue
        topic = TopicInSnapshot(
            name=name.rpartition(".")[0], id=topic_id_text(topic_id), partitions=[]
        )
        for number in [each for each in fs.list(join(directory, name)) if each.isdecimal()]:
            place = join(name, number)
            manifest = _copy_log(fs, join(directory, place), join(root, place))
            yield (
                topic,
                PartitionInSnapshot(
                    partition=int(number),
                    directory=meta.directory_id,
                    start_offset=manifest.log_start_offset,
                    end_offset=manifest.segments[-1].end_offset,
                    bytes=sum(row.size for row in manifest.segments),
                ),
            )


def _copy_log(fs: FileSystem, source: str, target: str) -> Manifest:
    fs.make_directory(target)
    manifest = decode_manifest(fs.read_bytes(join(source, MANIFEST)), join(source, MANIFEST))
    for name, is_unchanging in _files_of(fs, source, manifest).items():
        if is_unchanging:
            fs.link(join(source, name), join(target, name))
        else:
            fs.write_bytes(join(target, name), fs.read_bytes(join(source, name)))
    return manifest


def _files_of(fs: FileSystem, source: str, manifest: Manifest) -> Mapping[str, bool]:
    """Returns the files of a log, and whether nobody changes their bytes."""
    found: dict[str, bool] = {}
    listed = [row.base_offset for row in manifest.segments]
    for name in fs.list(source):
        file = parse_segment_file(name)
        if file is not None and file.base_offset in listed:
            found[name] = file.base_offset != listed[-1]
        elif name in (MANIFEST, LEADER_EPOCH_CHECKPOINT) or parse_snapshot_file(name) is not None:
            found[name] = True
        elif name == ABORTED_TRANSACTIONS:
            found[name] = False
    return found
