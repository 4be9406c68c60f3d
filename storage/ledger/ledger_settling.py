"""Finds out from the manifests how passes ended whose end a crash kept out of the ledger.

The entry of a group is durable before its swap. So after a crash the ledger may know of a swap that
never happened; it never misses one that did. The log's manifest tells which:

    an output of the group is listed      it was swapped
    else a source of it is listed         it was not
    neither is                            unknown: truncation, retention or a deletion removed both

A file version is never used twice in the manifests of a log, so nothing else can have these names.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence

from storage.files.errors import DamagedFile, DiskError, FormatFromTheFuture
from storage.files.files import FileSystem
from storage.files.paths import MANIFEST, join, topic_directory
from storage.formats.ledger_entry import GROUP, PASS, SETTLED, Entry, Members
from storage.formats.manifest import Manifest, decode

Names = frozenset[tuple[int, int]]
"""Base offset and file version of segments."""

SWAPPED, NOT_SWAPPED, UNKNOWN = "swapped", "not_swapped", "unknown"


def open_passes(entries: Iterable[Entry]) -> dict[str, list[Entry]]:
    """Returns the groups of each pass that has no end in these entries. Pure."""
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        if entry.kind == GROUP:
            groups.setdefault(entry.members["pass"], []).append(entry)
        elif entry.kind in (PASS, SETTLED):
            groups.pop(entry.members["pass"], None)
    return groups


def outcome(listed: Names, group: Members) -> str:
    """Returns whether a group was swapped, by the segments that the log's manifest lists. Pure."""
    if listed & names_of(group["outputs"]):
        return SWAPPED
    return NOT_SWAPPED if listed & names_of(group["sources"]) else UNKNOWN


def names_of(segments: Sequence[Mapping[str, int]]) -> Names:
    """Returns the names of segments in an entry."""
    return frozenset((each["base_offset"], each["version"]) for each in segments)


def settled(fs: FileSystem, directory: str, groups: Sequence[Entry]) -> Members:
    """Returns the entry that says how a pass ended, from the manifest of its log."""
    first = groups[0].members
    listed = _listed(fs, directory, first)
    by_outcome: dict[str, list[int]] = {SWAPPED: [], NOT_SWAPPED: [], UNKNOWN: []}
    for group in groups:
        by_outcome[outcome(listed, group.members)].append(group.number)
    return {
        **{name: first[name] for name in ("pass", "topic", "topic_id", "partition")},
        **by_outcome,
    }


def _listed(fs: FileSystem, directory: str, group: Members) -> Names:
    topic_id = uuid.UUID(group["topic_id"])
    topic = join(directory, topic_directory(group["topic"], topic_id))
    path = join(join(topic, str(group["partition"])), MANIFEST)
    try:
        return names_in(decode(fs.read_bytes(path), path))
    except (DiskError, DamagedFile, FormatFromTheFuture):
        return frozenset()


def names_in(manifest: Manifest) -> Names:
    """Returns the names of the segments that a manifest lists."""
    return frozenset((row.base_offset, row.file_version) for row in manifest.segments)
