"""Lists what a process has open: descriptors, and deleted files that still take space.

A file system frees a file's blocks when its last name and its last descriptor are gone. `bytes_held`
counts named and deleted files, like `df`, but no other program's files.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

DELETED = " (deleted)"
BLOCK_BYTES = 512


def open_descriptors(directory: Path) -> list[str]:
    """Returns the target of each open descriptor below the directory; deleted files are marked
    as such."""
    return sorted(target for target, _ in _links(directory))


def deleted_but_open(directory: Path) -> list[str]:
    """Returns the open files below the directory that no longer have a name."""
    return [target for target in open_descriptors(directory) if target.endswith(DELETED)]


def bytes_held(directory: Path) -> int:
    """Returns the disk bytes of the files below the directory and of deleted ones still open."""
    blocks = {
        inode: count
        for folder, _, names in os.walk(directory)
        for inode, count in (_blocks(Path(folder, name)) for name in names)
    }
    blocks |= dict(_blocks(link) for target, link in _links(directory) if target.endswith(DELETED))
    return sum(blocks.values()) * BLOCK_BYTES


def open_targets(pid: int) -> list[str]:
    """Returns what each descriptor of a process is open on, sorted."""
    return sorted(target for target, _ in _all_links(str(pid)))


def _blocks(path: Path) -> tuple[int, int]:
    """Returns a file's inode and blocks; zeros if it is deleted at this moment."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return 0, 0
    return found.st_ino, found.st_blocks


def _links(directory: Path) -> Iterator[tuple[str, Path]]:
    for target, link in _all_links("self"):
        if target.startswith(f"{directory}/"):
            yield target, link


def _all_links(process: str) -> Iterator[tuple[str, Path]]:
    for link in Path(f"/proc/{process}/fd").iterdir():
        try:
            target = str(link.readlink())
        except FileNotFoundError:  # It was closed meanwhile.
            continue
        yield target, link
