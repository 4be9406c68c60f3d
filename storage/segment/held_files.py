"""The files of a log's segments, kept open, so that a running broker cannot take them away.

A cleaning pass replaces segments and deletes the old files. An open file stays readable when it is
renamed or unlinked, so a reader that holds all files of a log reads it as it was at one moment.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import ExitStack, closing, suppress
from types import TracebackType
from typing import Self

from storage.files.errors import MissingFile
from storage.files.files import disk_errors
from storage.files.local_files import LocalFile, ReadOnlyFileSystem
from storage.files.paths import KEYS, LOG, join, segment_file
from storage.segment.listed_file import Listed, open_listed


class HeldFiles(ReadOnlyFileSystem):
    """A file system for readers that opens held files by their names, also after they were deleted.

    Use it in a `with` statement, which closes the held files at its end. A file that was opened from it
    stays usable for as long as its reader keeps it. Safe to share between threads after `hold`.
    """

    __slots__ = ("_files", "_opened")

    def __init__(self) -> None:
        self._opened = ExitStack()
        self._files: dict[str, LocalFile] = {}
        """By each name that a file may have had."""

    def hold(self, directory: str, segments: Iterable[Listed]) -> None:
        """Open the segments of a log and their key sidecars.

        Raises:
            MissingFile: the log no longer lists one of these segments: look at it again.
            NoSpace: no descriptor is left.
            DiskError: a file cannot be opened.
        """
        for each in segments:
            self._hold(directory, each, LOG)
            with suppress(MissingFile):
                self._hold(directory, each, KEYS)

    def _hold(self, directory: str, segment: Listed, kind: str) -> None:
        found = open_listed(ReadOnlyFileSystem(), directory, segment, kind)
        assert isinstance(found, LocalFile)
        self._opened.enter_context(closing(found))
        for is_cleaned in (False, True):
            name = segment_file(segment.base_offset, segment.file_version, kind, cleaned=is_cleaned)
            self._files[join(directory, name)] = found

    def open(self, path: str, *, create: bool = False) -> LocalFile:
        held = self._files.get(path)
        if held is None:
            return super().open(path, create=create)
        with disk_errors("open", path):
            return LocalFile(path, os.dup(held.fileno()), held.size)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._opened.close()
