"""Finds the logs that resyncs of a partition have put aside beside its log.

<partition>.aside.<end offset>/       a whole log, which only an operator removes, or the deletion of
<partition>.aside.<end offset>.<n>/   its topic
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from storage.files.errors import MissingFile
from storage.files.files import FileSystem
from storage.files.paths import ASIDE, join
from storage.threads import any_thread

_SUFFIX = re.compile(r"\.\d+(\.\d+)?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class AsideLog:
    """A log that was put aside."""

    directory: str
    size_bytes: int


@any_thread
def aside_logs(fs: FileSystem, log_directory: str) -> list[AsideLog]:
    """Returns the logs that were put aside of the log in this directory. Raises DiskError."""
    topic, _, partition = log_directory.rpartition("/")
    prefix = partition + ASIDE
    names = [
        name
        for name in _names(fs, topic)
        if name.startswith(prefix) and _SUFFIX.fullmatch(name.removeprefix(prefix))
    ]
    return [
        AsideLog(directory=join(topic, name), size_bytes=_size(fs, join(topic, name)))
        for name in sorted(names)
    ]


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
