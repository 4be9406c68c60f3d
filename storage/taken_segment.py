"""Taking over a cleaned segment that another process has written, in a folder on the same disk.

    its files renamed into the log's directory, *.cleaned, under a version of the log's own
    each looked at: a file, not a link to one, and no other name for it
    synced; its key sidecar copied block by block, because it says the version

From then on it is as one that a pass of this process has written: a crash leaves files that recovery
removes, a swap lists it. What its batches and indexes hold is for others to verify.
"""

from __future__ import annotations

from dataclasses import replace

from storage.cleaned_segment import CleanedSegment, discard_staged
from storage.errors import CorruptLog, DamagedSidecar, MissingFile
from storage.files import FileSystem
from storage.key_sidecar import KeySidecar
from storage.key_sidecar_writer import KeySidecarWriter
from storage.manifest import SegmentRow
from storage.paths import KEYS, LOG, OFFSET_INDEX, TIME_INDEX, join, segment_file

TAKEN_KINDS = (LOG, OFFSET_INDEX, TIME_INDEX)


def take_segment(
    fs: FileSystem,
    folder: str,
    row: SegmentRow,
    directory: str,
    version: int,
    hash_key: bytes,
    *,
    takes_keys: bool,
) -> CleanedSegment:
    """Move the files of the segment that `row` names from `folder` into a log's directory.

    Args:
        version: the log's, never used before.
        takes_keys: whether its key sidecar comes with it, if there is a sound one.

    Raises:
        CorruptLog: what has the name is no file of its own; nothing was taken.
        DiskError: a file is not there, or cannot be had; nothing was taken.
    """
    taken = CleanedSegment(replace(row, file_version=version), directory, fs)
    try:
        for kind in TAKEN_KINDS:
            _take(fs, _staged(folder, row, kind), taken.staged_path(kind))
        if takes_keys:
            _copy_keys(fs, _staged(folder, row, KEYS), row, taken, hash_key)
    except BaseException:
        discard_staged(fs, directory, row.base_offset, version)
        raise
    return taken


def _take(fs: FileSystem, source: str, target: str) -> None:
    fs.rename(source, target)
    if not fs.is_plain_file(target):
        raise CorruptLog(source, 0, "it is not a file of its own")
    file = fs.open(target)
    try:
        file.sync()
    finally:
        file.close()


def _copy_keys(
    fs: FileSystem, path: str, row: SegmentRow, taken: CleanedSegment, hash_key: bytes
) -> None:
    """Write the sidecar anew under the segment's new version; without one it is made when needed."""
    try:
        sidecar = KeySidecar.open(fs, path, row, hash_key)
        writer = KeySidecarWriter(
            fs,
            taken.staged_path(KEYS),
            base_offset=row.base_offset,
            file_version=taken.row.file_version,
            hash_key=hash_key,
        )
        try:
            for block in sidecar.blocks():
                writer.append(block.data)
            writer.finish(row.size, sidecar.totals)
        except BaseException:
            writer.discard()
            raise
    except (MissingFile, DamagedSidecar, ValueError):
        return


def _staged(folder: str, row: SegmentRow, kind: str) -> str:
    return join(folder, segment_file(row.base_offset, row.file_version, kind, cleaned=True))
