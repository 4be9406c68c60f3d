"""The merge itself, in steps: the log's suffix into a merger, then the snapshot's rows through it.

It reads files that nobody changes meanwhile: the last complete snapshot, and the segments between that
and the new one. It writes the new one's part, which it creates. Memory: what the suffix has changed.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

from replog.checkpoints import PART, Checkpoint, SnapshotWriter, checkpoint_name
from replog.entry import EMPTY, Entry, Kind
from replog.offline_merge.merger import NewMerger, merged
from replog.offline_merge.plan import MergePlan
from replog.offline_merge.snapshot_reader import SnapshotReader
from replog.segment import NAME, read_segment
from storage.files.errors import DamagedFile
from storage.files.files import File, FileSystem


def merge(
    files: FileSystem, plan: MergePlan, new_merger: NewMerger
) -> Generator[None, None, Checkpoint]:
    """Write the part of the next snapshot, and sync it. Each step reads a segment or writes a block.

    Returns:
        The snapshot, whose digest is the plan's.

    Raises:
        StorageError: a file is damaged or could not be written, or the digest of the rows differs from
            that of the live machine.
    """
    file = None if plan.base == EMPTY else _open_base(files, plan)
    try:
        return (yield from _merge(files, plan, new_merger, file))
    finally:
        if file is not None:
            file.close()


def _merge(
    files: FileSystem, plan: MergePlan, new_merger: NewMerger, file: File | None
) -> Generator[None, None, Checkpoint]:
    base = SnapshotReader(file, plan.base) if file is not None else None
    merger = new_merger(base.value_of if base is not None else lambda _: None)
    for segment in _suffix(files, plan):
        for entry in segment:
            if entry.kind is Kind.COMMAND:
                merger.add(entry.index, entry.payload)
        yield
    part = files.open(f"{plan.directory}/{checkpoint_name(plan.snapshot)}{PART}", create=True)
    rows = merged(base.rows() if base is not None else (), merger)
    try:
        writer = SnapshotWriter(part, plan.snapshot, rows, plan.digest)
        while writer.step():
            yield
        return writer.finish()
    finally:
        part.close()


def _open_base(files: FileSystem, plan: MergePlan) -> File:
    return files.open(f"{plan.directory}/{checkpoint_name(plan.base)}")


def _suffix(files: FileSystem, plan: MergePlan) -> Iterator[list[Entry]]:
    """Yields the entries between the snapshots, one segment at a time. Raises DamagedFile."""
    following = plan.base.end
    for name in files.list(plan.directory):
        match = NAME.fullmatch(name)
        if match is None or not plan.base.end <= int(match[1]) < plan.snapshot.end:
            continue
        path = f"{plan.directory}/{name}"
        found = read_segment(files, path)
        entries = [each for frame in found.frames for each in frame.entries()] if found else []
        if entries and entries[0].index != following:
            raise DamagedFile(path, f"the entries from {following} on are missing before it")
        yield entries
        following += len(entries)
    if following != plan.snapshot.end:
        raise DamagedFile(plan.directory, f"the entries from {following} on are missing")
