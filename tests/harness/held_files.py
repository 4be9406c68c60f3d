"""What this process holds below a directory: descriptors, and files that are deleted but still open.

A file system gives the blocks of a file back with its last name or its last descriptor, whichever goes
later. `bytes_held` counts both kinds of file, as `df` does, and no other program's files.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

DELETED = " (deleted)"
BLOCK_BYTES = 512


def open_descriptors(directory: Path) -> list[str]:
    """What each open descriptor below the directory points to; deleted files say so."""
    return sorted(target for target, _ in _links(directory))


def deleted_but_open(directory: Path) -> list[str]:
    """The files below the directory that have no name any more, and a descriptor."""
    return [target for target in open_descriptors(directory) if target.endswith(DELETED)]


def bytes_held(directory: Path) -> int:
    """Bytes of disk that the files below the directory take, with the deleted ones that are open."""
    blocks = {
        inode: count
        for folder, _, names in os.walk(directory)
        for inode, count in (_blocks(Path(folder, name)) for name in names)
    }
    blocks |= dict(_blocks(link) for target, link in _links(directory) if target.endswith(DELETED))
    return sum(blocks.values()) * BLOCK_BYTES


def _blocks(path: Path) -> tuple[int, int]:
    """A file's inode and blocks; nothing if it goes at this moment."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return 0, 0
    return found.st_ino, found.st_blocks


def _links(directory: Path) -> Iterator[tuple[str, Path]]:
    for link in Path("/proc/self/fd").iterdir():
        try:
            target = str(link.readlink())
        except FileNotFoundError:
            continue
        if target.startswith(f"{directory}/"):
            yield target, link
