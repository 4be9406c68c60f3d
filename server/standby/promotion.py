"""The promotion of a standby: what it has decided, and where that is written.

promotion.json     {"version": 1, "promoted_ms": ..., "standby": "...", "source": "...", "forced": false,
                    "epoch": ..., "missing": ["..."], "unknown_topics": [{...}]}

The file is the commit: once it is durable in the metadata directory, that directory is a broker's.
Every step after it can be repeated, so any start finishes a promotion that a crash has interrupted
(`install.py`, `promoted_start.py`). What a step changes is listed in the file before, so that the report
has it in any case. The report is the same file, beside what the promotion has replaced.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from storage.files.errors import DamagedFile, FormatFromTheFuture, MissingFile
from storage.files.files import FileSystem
from storage.files.paths import PROMOTED, PROMOTION, STANDBY, join

VERSION = 1


class MirroredTopic(msgspec.Struct, frozen=True, kw_only=True):
    """A topic that was mirrored before the followed metadata had it."""

    name: str
    id: str
    """As the stores write it."""
    partitions: int
    configs: dict[str, str]


class Promotion(msgspec.Struct, frozen=True, kw_only=True):
    """A promotion that has begun."""

    version: int = VERSION
    promoted_ms: int
    standby: str
    """The id by which the source knows the standby."""
    source: str
    """The address of the source's internal listener."""
    forced: bool
    """Whether it was promoted although records may be missing."""
    epoch: int
    """The highest epoch of the source's logs, and of its metadata's terms, that the standby has seen."""
    missing: list[str]
    """What it lacks of the source, or may lack, a sentence each."""
    unknown_topics: list[MirroredTopic]
    aborted: list[str] = []
    """Transactional ids whose ongoing transaction is aborted."""
    incomplete: list[str] = []
    """Committed transactions of which records may be missing, a sentence each."""
    lowered: list[str] = []
    """Committed offsets beyond the end of their log, a sentence each."""

    def with_found(self, **lists: Iterable[str]) -> Promotion:
        """Returns the promotion with more in some of its lists, everything once."""
        merged = {
            name: list(dict.fromkeys([*getattr(self, name), *found]))
            for name, found in lists.items()
        }
        return msgspec.structs.replace(self, **merged)


Report = Promotion
"""A promotion that is finished."""


def read_promotion(fs: FileSystem, directory: str) -> Promotion | None:
    """Returns the promotion that has begun in a metadata directory; None if there is none.

    Raises:
        DamagedFile, FormatFromTheFuture: it cannot be read.
        DiskError: the disk failed.
    """
    path = join(directory, PROMOTION)
    try:
        data = fs.read_bytes(path)
    except MissingFile:
        return None
    try:
        found = msgspec.json.decode(data, type=Promotion)
    except msgspec.DecodeError as error:
        raise DamagedFile(path, str(error)) from error
    if found.version > VERSION:
        raise FormatFromTheFuture(path, found.version, VERSION)
    return found


def begin_promotion(fs: FileSystem, directory: str, promotion: Promotion) -> None:
    """Commit to a promotion: from now on the directory is a broker's. Raises DiskError."""
    note_found(fs, directory, promotion)


def note_found(fs: FileSystem, directory: str, promotion: Promotion) -> None:
    """Keep what a promotion has found, before it is changed. Raises DiskError."""
    fs.replace_durably(join(directory, PROMOTION), msgspec.json.encode(promotion))


def end_promotion(fs: FileSystem, directory: str, report: Report) -> str:
    """Put what the promotion has replaced aside, with its report. Can be repeated.

    Returns the path of the report. Raises DiskError.
    """
    standby = join(directory, STANDBY)
    aside = join(directory, f"{PROMOTED}.{report.promoted_ms}")
    if fs.exists(standby):
        fs.rename(standby, aside)
        fs.sync_directory(directory)
    path = join(aside, PROMOTION)
    fs.replace_durably(path, msgspec.json.encode(report))
    fs.unlink(join(directory, PROMOTION))
    fs.sync_directory(directory)
    return path


def read_report(fs: FileSystem, directory: str, promoted_ms: int) -> Report:
    """Returns the report of a finished promotion. Raises StorageError, msgspec.DecodeError."""
    path = join(join(directory, f"{PROMOTED}.{promoted_ms}"), PROMOTION)
    return msgspec.json.decode(fs.read_bytes(path), type=Report)
