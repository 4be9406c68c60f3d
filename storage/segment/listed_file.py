"""Finds the files of a listed segment in the directory of a broker that runs, or was killed.

The manifest lists the segments of a swap before their files are renamed. So a listed file may still have
its staged name: for a moment, or until the next start.
"""

from __future__ import annotations

from typing import Protocol

from protocol.wire.numbers import Offset
from storage.files.errors import MissingFile
from storage.files.files import File, FileSystem
from storage.files.paths import join, segment_file


class Listed(Protocol):
    """What names the files of a segment, as in a row of the manifest."""

    @property
    def base_offset(self) -> Offset: ...
    @property
    def file_version(self) -> int: ...


def open_listed(fs: FileSystem, directory: str, segment: Listed, kind: str) -> File:
    """Open a file of a listed segment, even if its swap has not renamed it yet. Raises DiskError."""
    final, staged = _names(directory, segment, kind)
    try:
        return fs.open(final)
    except MissingFile:
        try:
            return fs.open(staged)
        except MissingFile:
            # A swap may have renamed it between the two attempts.
            return fs.open(final)


def listed_file(fs: FileSystem, directory: str, segment: Listed, kind: str) -> str:
    """Returns the path that a file of a listed segment has now, whether or not the file exists.

    A running broker may rename it at any moment: `open_listed` opens it nevertheless.
    """
    final, staged = _names(directory, segment, kind)
    return staged if not fs.exists(final) and fs.exists(staged) else final


def _names(directory: str, segment: Listed, kind: str) -> tuple[str, str]:
    names = (
        segment_file(segment.base_offset, segment.file_version, kind, cleaned=cleaned)
        for cleaned in (False, True)
    )
    final, staged = (join(directory, name) for name in names)
    return final, staged
