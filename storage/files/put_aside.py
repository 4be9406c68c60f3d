"""Gives a directory another name, under which no start finds it: what might be the last copy is kept."""

from __future__ import annotations

from itertools import count

from storage.files.files import FileSystem
from storage.files.paths import BEFORE


def put_aside(fs: FileSystem, path: str) -> str:
    """Rename a directory to `<path>.before`, with a number if an earlier one is there. Returns the new
    path. The caller syncs the directory above.

    Raises:
        DiskError: the disk failed.
    """
    names = (f"{path}{BEFORE}" + (f".{number}" if number else "") for number in count())
    free = next(each for each in names if not fs.exists(each))
    fs.rename(path, free)
    return free
