"""Rebuilds damaged index files and manifests from the segments.

Indexes come from batch headers. A manifest comes from the names and contents of the segment files: where
files overlap, the highest version wins, because swaps and rolls only create newer versions.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from protocol.records.batch_tally import BatchTally
from storage.batches.scan import scan_file
from storage.files.errors import LogOffline, MissingFile
from storage.files.files import File, FileSystem
from storage.files.paths import LOG, SegmentFile, join, parse_segment_file, segment_file
from storage.formats.config_property import LONG_MAX
from storage.formats.log_identity import LogIdentity
from storage.formats.manifest import FLAG_CLEANED, Manifest, SegmentRow
from storage.formats.segment_index import SegmentIndex


def rebuild_index(file: File, size: int, base_offset: int, interval_bytes: int) -> SegmentIndex:
    """Rebuild a segment's indexes from its batches. Raises DiskError."""
    tally = BatchTally(
        base_offset=base_offset, index_interval_bytes=interval_bytes, producers_from=LONG_MAX
    )
    scan_file(file, size, tally)
    index = SegmentIndex()
    index.extend(tally.index_entries)
    return index


@dataclass(frozen=True, slots=True)
class _Found:
    """A segment file and the scan of its batches."""

    name: SegmentFile
    batches: BatchTally

    @property
    def end_offset(self) -> int:
        return self.batches.end_offset

    @property
    def is_dense(self) -> bool:
        """Whether no record is missing, so that the cleaner has not rewritten the segment."""
        return self.batches.record_count == self.end_offset - self.name.base_offset


def rebuild_manifest(fs: FileSystem, identity: LogIdentity) -> Manifest:
    """Returns the manifest that the segment files imply. Recovery finds the last segment's end.

    Raises:
        LogOffline: there is no segment, or one is missing between two others.
        DiskError: a file cannot be read.
    """
    found = _newest_of_each_range(
        [_scan(fs, identity, name) for name in _segment_files(fs, identity)]
    )
    if not found:
        raise LogOffline(str(identity.topic_partition), f"{identity.directory}: no segment is left")
    for earlier, later in itertools.pairwise(found):
        if earlier.is_dense and earlier.end_offset != later.name.base_offset:
            reason = f"offsets [{earlier.end_offset}, {later.name.base_offset}) are missing"
            raise LogOffline(str(identity.topic_partition), reason)
    rows = [_row(each) for each in found[:-1]]
    last = found[-1].name
    rows.append(SegmentRow(base_offset=last.base_offset, file_version=last.version))
    return Manifest(
        version=max(each.name.version for each in found) + 1,
        generation=0,
        topic_id=identity.topic_id,
        partition=identity.topic_partition.partition,
        log_start_offset=rows[0].base_offset,
        clean_offset=rows[0].base_offset,
        has_unfinished_pass=True,  # No one knows what was cleaned.
        segments=tuple(rows),
    )


def _segment_files(fs: FileSystem, identity: LogIdentity) -> list[SegmentFile]:
    try:
        names = map(parse_segment_file, fs.list(identity.directory))
    except MissingFile:
        return []
    return [name for name in names if name and name.kind == LOG and not name.is_cleaned]


def _scan(fs: FileSystem, identity: LogIdentity, name: SegmentFile) -> _Found:
    path = join(identity.directory, segment_file(name.base_offset, name.version, LOG))
    tally = BatchTally(
        base_offset=name.base_offset, index_interval_bytes=LONG_MAX, producers_from=LONG_MAX
    )
    file = fs.open(path)
    try:
        scan_file(file, file.size, tally)
    finally:
        file.close()
    return _Found(name, tally)


def _newest_of_each_range(found: list[_Found]) -> list[_Found]:
    chosen: list[_Found] = []
    for each in sorted(found, key=lambda one: one.name.version, reverse=True):
        if not any(_overlap(each, other) for other in chosen):
            chosen.append(each)
    return sorted(chosen, key=lambda one: one.name.base_offset)


def _overlap(one: _Found, other: _Found) -> bool:
    if one.name.base_offset == other.name.base_offset:
        return True
    return one.name.base_offset < other.end_offset and other.name.base_offset < one.end_offset


def _row(found: _Found) -> SegmentRow:
    batches = found.batches
    return SegmentRow(
        base_offset=found.name.base_offset,
        file_version=found.name.version,
        flags=0 if found.is_dense else FLAG_CLEANED,
        end_offset=batches.end_offset,
        size=batches.position,
        max_timestamp=batches.max_timestamp,
        offset_of_max_timestamp=batches.offset_of_max_timestamp,
        record_count=batches.record_count,
        control_count=batches.control_count,
    )
