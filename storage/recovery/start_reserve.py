"""Disk space that each log directory reserves for its next start, which may find the disk full.

A start writes little, but that little must not fail: the bytes that recovery cuts off a torn log, the
metadata log, the names of new files. The reserve is an empty file with allocated blocks. A start that
finds less free space than the reserve removes the file; the broker creates it again when there is space.
"""

from __future__ import annotations

import logging

from storage.files.errors import DiskError
from storage.files.files import FileSystem
from storage.files.paths import RESERVE, join

_log = logging.getLogger("storage.recovery.start_reserve")

RESERVE_BYTES = 4 << 20
FREE_BYTES_MIN = 4 * RESERVE_BYTES
"""The reserve is only created while this much is free: below that, appends get the rest."""


def release_reserve(fs: FileSystem, directory: str) -> None:
    """Remove the reserve if the disk is so full that the start may need its space. Raises DiskError."""
    path = join(directory, RESERVE)
    if fs.exists(path) and fs.free_bytes(directory) < RESERVE_BYTES:
        _log.warning("%s: the disk is full; using the space reserved for a start", directory)
        fs.unlink(path)


def keep_reserve(fs: FileSystem, directory: str) -> bool:
    """Create the reserve if it is missing and the disk has space. Failing to do so is only logged.

    Returns whether there is a new name in the directory, which should be synced.
    """
    path = join(directory, RESERVE)
    try:
        if fs.exists(path) or fs.free_bytes(directory) < FREE_BYTES_MIN:
            return False
        file = fs.open(path, create=True)
        try:
            file.reserve(RESERVE_BYTES)
        finally:
            file.close()
    except DiskError as error:
        _log.warning("%s: cannot reserve space for the next start: %s", directory, error)
        return False
    return True
