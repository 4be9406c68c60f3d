"""Verifies a manifest, and the names in a log's directory against it.

Unlisted files are explained the way recovery treats them (`storage/recovery/recovery.py`):
    continues    a segment after the last listed one: it was rolled and not listed yet
    staged       `.cleaned`: a cleaning pass is writing it, or a crash ended one
    covered      older than the manifest: its batches are dead, or in a segment that is listed
    kept         a cleaning pass has replaced it, and can be undone (`storage/undo/kept_passes.py`)
    cut aside    bytes that recovery cut off a torn log
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from storage.files.paths import (
    ABORTED_TRANSACTIONS,
    LEADER_EPOCH_CHECKPOINT,
    LOG,
    MANIFEST,
    UNDO,
    SegmentFile,
    join,
    parse_segment_file,
    parse_snapshot_file,
    segment_file,
)
from storage.formats.log_identity import LogIdentity
from storage.formats.manifest import FLAG_CLEANED, UNKNOWN, Manifest, SegmentRow
from storage.verify.findings import Check, Findings

CUT_FILE = re.compile(r"cut\.\d+\.\d+")
STAGING = ".tmp"


def check_manifest(manifest: Manifest, identity: LogIdentity, findings: Findings) -> None:
    """Check that a manifest that decodes is this log's and does not contradict itself."""
    path = join(identity.directory, MANIFEST)
    for problem in _contradictions(manifest, identity):
        findings.error(Check.MANIFEST, path, problem)
    end_offset = manifest.log_start_offset
    for row in manifest.segments:
        if end_offset < row.base_offset:
            text = f"no segment covers the offsets [{end_offset}, {row.base_offset})"
            findings.note(Check.MANIFEST, path, f"{text}, as after a truncation")
        end_offset = row.end_offset
    if manifest.has_foreign_states:
        text = "a resync has just replaced the log; recovery reads the states from the segments"
        findings.note(Check.MANIFEST, path, text)
    elif manifest.truncate_to != UNKNOWN:
        text = f"a truncation to {manifest.truncate_to} was started; recovery finishes it"
        findings.note(Check.MANIFEST, path, text)


def _contradictions(manifest: Manifest, identity: LogIdentity) -> list[str]:
    rows = manifest.segments
    found = []
    if manifest.topic_id != identity.topic_id:
        found.append(f"it has topic id {manifest.topic_id}, but its directory {identity.topic_id}")
    if manifest.partition != identity.topic_partition.partition:
        found.append(f"it has partition {manifest.partition}")
    if not rows:
        return [*found, "it lists no segment"]
    versions = [row.file_version for row in rows]
    if len(set(versions)) < len(versions) or max(versions) > manifest.version:
        found.append("file versions repeat or are newer than the manifest")
    problems = (_row_contradiction(row, row is rows[-1]) for row in rows)
    found += [problem for problem in problems if problem is not None]
    for earlier, later in itertools.pairwise(rows):
        if not earlier.base_offset < later.base_offset or earlier.end_offset > later.base_offset:
            found.append(f"segments {earlier.base_offset} and {later.base_offset} overlap")
    return found


def _row_contradiction(row: SegmentRow, is_last: bool) -> str | None:
    name = segment_file(row.base_offset, row.file_version, LOG)
    if (row.end_offset == UNKNOWN) != (row.size == UNKNOWN):
        return f"{name} has only one of a size and an end"
    if row.end_offset == UNKNOWN:
        return None if is_last else f"{name} is sealed, but its end is unknown"
    if row.end_offset < row.base_offset or row.size < 0:
        return f"{name} ends at offset {row.end_offset} with {row.size} bytes"
    if row.flags & ~FLAG_CLEANED:
        return f"{name} has undefined flags: {row.flags:#x}"
    return None


@dataclass(frozen=True, slots=True)
class LogFiles:
    """The names in a log's directory that the manifest does not list but recovery uses."""

    continuing: dict[int, SegmentFile]
    """By base offset: the segments that may continue the last listed one."""
    snapshot_offsets: Sequence[int]


def explain_names(
    manifest: Manifest,
    directory: str,
    sizes: Mapping[str, int],
    findings: Findings,
    kept_names: Collection[tuple[int, int]] = (),
) -> LogFiles:
    """Report every unexplained name; listed segments are checked elsewhere.

    Args:
        sizes: the size of each file in the directory, by name.
        kept_names: the segments that are kept for undos.
    """
    listed = {(row.base_offset, row.file_version) for row in manifest.segments}
    continuing: dict[int, SegmentFile] = {}
    snapshots = []
    for name in sorted(sizes):
        file, offset = parse_segment_file(name), parse_snapshot_file(name)
        if offset is not None:
            snapshots.append(offset)
        elif file is None:
            _explain_other(join(directory, name), name, manifest, findings)
        elif not file.is_cleaned and (file.base_offset, file.version) in kept_names:
            if file.kind == LOG:
                text = "kept: a cleaning pass has replaced it, and can be undone"
                findings.note(Check.FILES, join(directory, name), text)
        elif (file.base_offset, file.version) not in listed:
            if not file.is_cleaned and _may_continue(file, manifest):
                if file.kind == LOG:
                    continuing[file.base_offset] = file
            elif file.kind == LOG and sizes[name]:
                _explain_unlisted(join(directory, name), file, manifest, findings)
    return LogFiles(continuing, snapshots)


def _may_continue(file: SegmentFile, manifest: Manifest) -> bool:
    tail = manifest.segments[-1]
    return file.base_offset > tail.base_offset and manifest.truncate_to == UNKNOWN


def _explain_unlisted(path: str, file: SegmentFile, manifest: Manifest, findings: Findings) -> None:
    if file.is_cleaned:
        text = "staged: a cleaning pass is writing it, or the next start removes it"
    elif file.version < manifest.version or manifest.truncate_to != UNKNOWN:
        text = "covered by a listed segment; it goes with its last reader or at the next start"
    else:
        text = "the manifest does not list it, nothing covers it, and it does not continue the log"
        findings.warn(Check.FILES, path, text)
        return
    findings.note(Check.FILES, path, text)


def _explain_other(path: str, name: str, manifest: Manifest, findings: Findings) -> None:
    if name in (MANIFEST, LEADER_EPOCH_CHECKPOINT, ABORTED_TRANSACTIONS):
        return
    if name == UNDO:
        if not manifest.has_undo_file:
            text = "it no longer counts: the log was cut or replaced, or nothing could be kept"
            findings.note(Check.FILES, path, text)
        return
    if CUT_FILE.fullmatch(name):
        findings.note(Check.FILES, path, "cut aside: bytes that recovery found after a log's end")
    elif name.endswith(STAGING):
        findings.note(
            Check.FILES, path, "the temporary file of a write that a crash cut short, or is running"
        )
    else:
        findings.note(Check.FILES, path, "not a name that Kompakt uses")
