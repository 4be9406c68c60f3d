"""Finds the files of a listed segment in the directory of a broker that may have been killed."""

from __future__ import annotations

from typing import Protocol

from protocol.wire.numbers import Offset
from storage.files.files import FileSystem
from storage.files.paths import join, segment_file


class Listed(Protocol):
    """What names the files of a segment, as in a row of the manifest."""

    @property
    def base_offset(self) -> Offset: ...
    @property
    def file_version(self) -> int: ...


def listed_file(fs: FileSystem, directory: str, segment: Listed, kind: str) -> str:
    """Returns the path of a file of a listed segment, whether or not the file exists.

    It is the staged name if a kill came between the commit of the segment's swap and the renames.
    """
    final = join(directory, segment_file(segment.base_offset, segment.file_version, kind))
    if fs.exists(final):
        return final
    name = segment_file(segment.base_offset, segment.file_version, kind, cleaned=True)
    staged = join(directory, name)
    return staged if fs.exists(staged) else final
