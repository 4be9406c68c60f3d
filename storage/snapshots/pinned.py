"""What snapshots hold of the disk: the bytes that come back when their files go.

A file's bytes come back with its last name. A snapshot has names of segments that a log, other
snapshots, or a pass that can be undone may have, too:

    names of a segment            in the log      in snapshot A   in snapshot B
    made, not cleaned since       yes             yes             yes             nothing is pinned
    cleaned after B               no              yes             yes             pinned, by both
    cleaned between A and B       no              yes             no              pinned, by A alone
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from storage.files.files import FileIdentity


@dataclass(slots=True)
class PinnedBytes:
    """The bytes of files whose names are all in snapshots."""

    total: int = 0
    alone: dict[str, int] = field(default_factory=dict)
    """By snapshot: what is freed if it alone is dropped."""


@dataclass(slots=True)
class _Shared:
    """A file with several names."""

    names_found: int
    holder: str | None
    """The snapshot that has all names so far; None if several have some."""


def count_pinned(names: Iterable[tuple[str, FileIdentity]]) -> PinnedBytes:
    """Returns what snapshots pin.

    Args:
        names: all names in all snapshots: the id of the snapshot, and the file.
    """
    pinned = PinnedBytes()
    shared: dict[tuple[int, int], _Shared] = {}
    for snapshot, file in names:
        pinned.alone.setdefault(snapshot, 0)
        found = shared.pop(file.number, None)
        if found is None:
            found = _Shared(0, snapshot)
        found.names_found += 1
        if found.holder != snapshot:
            found.holder = None
        # At least: a log may lose its name while the names are read.
        if found.names_found < file.names_count:
            shared[file.number] = found
            continue
        pinned.total += file.size
        if found.holder is not None:
            pinned.alone[found.holder] += file.size
    return pinned
