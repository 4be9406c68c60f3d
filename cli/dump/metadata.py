"""Reads the files of the metadata store as sections: its log and snapshots, also of earlier releases."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from cli.dump.hidden_values import shown_operations, shown_value
from cli.dump.kinds import Kind
from cli.dump.section import Row, Section
from replog.checkpoint_format import rows_in
from replog.checkpoints import verify_bytes
from replog.control import decode_end
from replog.entry import Frame, SnapshotId
from replog.entry import Kind as EntryKind
from replog.machine import Row as StateRow
from replog.segment import read_segment
from server.metadata.machine import (
    ENTRY_KEY,
    LEASE_KEY,
    decode_command,
    decode_entry,
    decode_number,
)
from server.metadata.old_files import decode_snapshot, frame_damage, scan_frames
from storage.files.files import FileSystem


def metadata_log(fs: FileSystem, path: str) -> Section:
    """Reads a segment of the log. Raises CorruptLog: its header or its indexes are damaged."""
    found = read_segment(fs, path)
    if found is None:
        return Section(
            kind=Kind.METADATA_LOG.value, path=path, facts={"damage": "it has no header"}
        )
    segment = found.segment
    facts: Row = {
        "base_index": segment.base,
        "end_index": segment.end,
        "previous_term": segment.header.previous_term,
        "begins_after_an_installed_snapshot": segment.header.is_reset,
        "bytes": segment.size,
    }
    if found.torn:
        facts["damage"] = f"at byte {segment.size}: {found.damage or 'a torn frame'}"
    return Section(
        kind=Kind.METADATA_LOG.value, path=path, facts=facts, rows=_entries(found.frames)
    )


def _entries(frames: Sequence[Frame]) -> Iterator[Row]:
    for frame in frames:
        for entry in frame.entries():
            row: Row = {"index": entry.index, "term": entry.term, "kind": entry.kind.name.lower()}
            if entry.kind is EntryKind.COMMAND:
                row["operations"] = shown_operations(decode_command(entry.payload))
            elif entry.kind is EntryKind.END:
                end = decode_end(entry.payload)
                row |= {"start_index": end.start_index, "chunks": end.chunks, "bytes": end.size}
            yield row


def metadata_snapshot(fs: FileSystem, path: str) -> Section:
    """Reads a snapshot, after all of it was checked. Raises DamagedFile."""
    data = memoryview(fs.read_bytes(path))
    checkpoint = verify_bytes(data, path)
    leases: list[list[int]] = []
    facts: Row = {
        **_id(checkpoint.snapshot),
        "bytes": checkpoint.size,
        "set_digest": f"{checkpoint.digest:032x}",
    }
    entries: list[StateRow] = []
    for key, value in rows_in(data, path):
        if key[:1] == ENTRY_KEY:
            entries.append((key, value))
        elif key[:1] == LEASE_KEY:
            leases.append([decode_number(key[1:]), decode_number(value)])
        else:
            facts["revision"] = decode_number(value)
    facts["leases"] = leases
    return Section(
        kind=Kind.METADATA_SNAPSHOT.value, path=path, facts=facts, rows=map(_entry, entries)
    )


def _id(snapshot: SnapshotId) -> Row:
    return {"end_index": snapshot.end, "term": snapshot.term}


def _entry(row: StateRow) -> Row:
    entry = decode_entry(*row)
    return {
        "key": entry.key,
        "value": shown_value(entry.key, entry.value),
        "created_revision": entry.create_revision,
        "modified_revision": entry.mod_revision,
        "lease": entry.lease,
    }


def old_metadata_log(fs: FileSystem, path: str) -> Section:
    """Reads a log of an earlier release."""
    data = fs.read_bytes(path)
    end, payloads = scan_frames(data)
    contents = [json.loads(payload) for payload in payloads]
    facts = {"format": contents[0].get("format") if contents else None}
    if end < len(data):
        facts["damage"] = f"at byte {end}: {frame_damage(data, end) or 'a torn transaction'}"
    return Section(
        kind=Kind.OLD_METADATA_LOG.value, path=path, facts=facts, rows=map(_old_row, contents[1:])
    )


def _old_row(content: Row) -> Row:
    return content | {"operations": shown_operations(content["operations"])}


def old_metadata_snapshot(fs: FileSystem, path: str) -> Section:
    """Reads a snapshot of an earlier release. Raises DamagedFile."""
    state = decode_snapshot(fs.read_bytes(path), path)
    names = ("key", "value", "created_revision", "modified_revision", "lease")
    rows = (
        dict(zip(names, (entry[0], shown_value(*entry[:2]), *entry[2:]), strict=False))
        for entry in state.entries
    )
    return Section(
        kind=Kind.OLD_METADATA_SNAPSHOT.value,
        path=path,
        facts={"revision": state.revision, "leases": state.leases},
        rows=rows,
    )
