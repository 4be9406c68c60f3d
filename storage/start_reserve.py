"""Disk space that a log directory keeps for its next start, which may find the disk full.

A start writes little, but it must be able to write it: bytes that recovery cuts off a torn log, the
metadata log, the names of new files. The reserve is an empty file with blocks set aside for it. A start
that finds less than these free removes the file, and it is made again once there is space.
"""

from __future__ import annotations

import logging

from storage.errors import DiskError
from storage.files import FileSystem
from storage.paths import RESERVE, join

_log = logging.getLogger("storage.start_reserve")

RESERVE_BYTES = 4 << 20
FREE_BYTES_MIN = 4 * RESERVE_BYTES
"""With less than this free, appends have the rest."""


def release_reserve(fs: FileSystem, directory: str) -> None:
    """Give the reserve to the start that begins, if it may need it. Raises DiskError."""
    path = join(directory, RESERVE)
    if fs.exists(path) and fs.free_bytes(directory) < RESERVE_BYTES:
        _log.warning("%s: the disk is full; using what is reserved for a start", directory)
        fs.unlink(path)


def keep_reserve(fs: FileSystem, directory: str) -> None:
    """Have a reserve, if the disk has space for it. One that cannot be made is no failure."""
    path = join(directory, RESERVE)
    try:
        if fs.exists(path) or fs.free_bytes(directory) < FREE_BYTES_MIN:
            return
        file = fs.open(path, create=True)
        try:
            file.reserve(RESERVE_BYTES)
        finally:
            file.close()
    except DiskError as error:
        _log.warning("%s: nothing is reserved for the next start: %s", directory, error)
