"""Finds the logs that resyncs have put aside beside the logs of partitions.

<partition>.aside.<end offset>/       a whole log, which only an operator removes, or the deletion of
<partition>.aside.<end offset>.<n>/   its topic
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from storage.files.errors import MissingFile
from storage.files.files import FileSystem
from storage.files.paths import ASIDE, join
from storage.threads import any_thread

_NAME = re.compile(rf"(\d+){re.escape(ASIDE)}\.\d+(?:\.\d+)?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class AsideLog:
    """A log that was put aside."""

    directory: str
    size_bytes: int


@any_thread
def aside_logs(fs: FileSystem, log_directories: Iterable[str]) -> dict[str, list[AsideLog]]:
    """Returns the logs that were put aside of the logs in these directories, by directory; only of those
    that have some.

    Reads each topic's directory once. Raises DiskError.
    """
    wanted = set(log_directories)
    found: dict[str, list[AsideLog]] = {}
    for topic in sorted({each.rpartition("/")[0] for each in wanted}):
        for name in sorted(_names(fs, topic)):
            match = _NAME.fullmatch(name)
            of = None if match is None else join(topic, match[1])
            if of in wanted:
                directory = join(topic, name)
                aside = AsideLog(directory=directory, size_bytes=_size(fs, directory))
                found.setdefault(of, []).append(aside)
    return found


def _size(fs: FileSystem, directory: str) -> int:
    return sum(_file_size(fs, join(directory, name)) for name in _names(fs, directory))


def _names(fs: FileSystem, directory: str) -> list[str]:
    try:
        return fs.list(directory)
    except MissingFile:
        return []  # An operator removes it at the same time, or no file of the topic was made yet.


def _file_size(fs: FileSystem, path: str) -> int:
    try:
        return fs.size(path)
    except MissingFile:
        return 0
