"""Finds files beside a log's segments that may still have records which the log no longer has.

    <log dir>/<topic>.<id>/<n>/<base>.v<version>.log     a segment that was replaced, and has readers or
                                                         is kept for an undo (docs/design/undo.md)
    <log dir>/<topic>.<id>/<n>/*.cleaned                 an output of a pass that is not swapped in yet
    <log dir>/<topic>.<id>/<n>/cut.<offset>.<n>          bytes that a recovery has cut off
    <log dir>/<topic>.<id>/<n>.resync                    a copy that a resync is filling
    <log dir>/<topic>.<id>/<n>.aside.*                   a log that a resync has replaced
    <log dir>/<topic>.<id>.before*                       a topic that was put aside as a whole
    <log dir>/snapshots/<id>/<topic>.<id>/<n>/*.log      a segment of a snapshot, not in the log now
    <log dir>/leases/<id>                                outputs of a pass of another process

A proof that records are gone lists these (docs/design/erasure.md). **A part of the storage that keeps
old segments adds its paths to `kept_copies`.** They are only named: a copy may be the last one of
something. What is kept for undos, the log itself drops (`PartitionLog.drop_passes_kept`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

from storage.files.errors import MissingFile
from storage.files.files import FileSystem
from storage.files.paths import (
    ASIDE,
    BEFORE,
    CUT,
    LEASES,
    LOG,
    PART,
    RESYNC,
    SNAPSHOTS,
    join,
    parse_segment_file,
)

SegmentName: TypeAlias = tuple[int, int]
"""The base offset and the file version of a segment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptCopy:
    """A file or directory that may have records which are no longer in the log."""

    path: str
    what: str
    """What it is, for people."""
    remedy: str
    """What makes it go."""


def kept_copies(
    fs: FileSystem,
    directory: str,
    segments: Callable[[], Collection[SegmentName]],
    undoable: Collection[SegmentName] = (),
) -> tuple[KeptCopy, ...]:
    """Returns everything beside the segments of a log that may have their old records.

    A worker thread. A file that a pass creates during the call may be left out.

    Args:
        directory: of the log.
        segments: returns those that are in the log now.
        undoable: those that are kept so that passes can be undone (`PartitionLog.passes_kept`).

    Raises:
        DiskError: a directory cannot be read.
    """
    topic_directory, _, partition = directory.rpartition("/")
    log_directory, _, topic = topic_directory.rpartition("/")
    names = _names(fs, directory)
    listed = segments()
    return (
        *_beside_segments(directory, names, listed, undoable),
        *_beside_log(topic_directory, partition, _names(fs, topic_directory)),
        *_beside_topic(log_directory, topic, _names(fs, log_directory)),
        *_in_snapshots(fs, log_directory, join(topic, partition), listed),
        *_leases(join(log_directory, LEASES), _names(fs, join(log_directory, LEASES))),
    )


def _names(fs: FileSystem, directory: str) -> list[str]:
    with suppress(MissingFile):
        return fs.list(directory)
    return []


def _beside_segments(
    directory: str,
    names: Sequence[str],
    listed: Collection[SegmentName],
    undoable: Collection[SegmentName],
) -> Iterator[KeptCopy]:
    for name in names:
        file = parse_segment_file(name)
        if file is None:
            if name.startswith(CUT):
                yield KeptCopy(
                    path=join(directory, name),
                    what="bytes that a recovery has cut off the log",
                    remedy="remove the file, unless something in it is still to be saved",
                )
        elif file.kind != LOG:
            continue  # Indexes and key sidecars have no records, and go with their segment.
        elif file.is_cleaned:
            yield KeptCopy(
                path=join(directory, name),
                what="an output of a cleaning pass that is not finished",
                remedy="wait for the pass; a start of the broker removes what a crash has left",
            )
        elif (file.base_offset, file.version) in undoable:
            yield KeptCopy(
                path=join(directory, name),
                what="a replaced segment that is kept so that its pass can be undone",
                remedy="wait until its compaction.undo.ms is over, or set that to 0",
            )
        elif (file.base_offset, file.version) not in listed:
            yield KeptCopy(
                path=join(directory, name),
                what="a replaced segment that a reader still uses",
                remedy="wait until the client has read it, or close the client's connection",
            )


def _beside_log(topic_directory: str, partition: str, names: Sequence[str]) -> Iterator[KeptCopy]:
    for name in names:
        if name.startswith(partition + ASIDE):
            yield KeptCopy(
                path=join(topic_directory, name),
                what="a log that a resync has replaced and put aside",
                remedy="remove the directory, unless something in it is still to be saved",
            )
        elif name == partition + RESYNC:
            yield KeptCopy(
                path=join(topic_directory, name),
                what="a copy of the log that a resync was filling",
                remedy="remove the directory while the broker is stopped",
            )


def _beside_topic(log_directory: str, topic: str, names: Sequence[str]) -> Iterator[KeptCopy]:
    for name in names:
        if name.startswith(topic + BEFORE):
            yield KeptCopy(
                path=join(log_directory, name),
                what="an earlier state of the topic that was put aside",
                remedy="remove the directory, unless something in it is still to be saved",
            )


def _in_snapshots(
    fs: FileSystem, log_directory: str, log: str, listed: Collection[SegmentName]
) -> Iterator[KeptCopy]:
    snapshots = join(log_directory, SNAPSHOTS)
    for snapshot in _names(fs, snapshots):
        directory = join(join(snapshots, snapshot), log)
        for name in _names(fs, directory):
            file, path = parse_segment_file(name), join(directory, name)
            if file is None or file.kind != LOG or (file.base_offset, file.version) in listed:
                continue
            with suppress(MissingFile):  # The snapshot is being dropped.
                if fs.size(path):
                    yield KeptCopy(
                        path=path,
                        what=f"a segment of snapshot {snapshot}",
                        remedy=f"kompakt snapshot drop {snapshot.removesuffix(PART)}",
                    )


def _leases(directory: str, names: Sequence[str]) -> Iterator[KeptCopy]:
    for name in names:
        yield KeptCopy(
            path=join(directory, name),
            what="a pass that another process executes under a lease",
            remedy="wait until the lease ends; a start of the broker removes the folder",
        )
