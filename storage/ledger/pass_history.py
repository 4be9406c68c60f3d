"""The history of cleaning passes: one line per pass, in a file that survives restarts.

    <log directory with the metadata>/compaction-history        the newer lines
    <log directory with the metadata>/compaction-history.old    the older ones

    line := CRC-32C of the JSON, 8 hex digits | space | JSON object, UTF-8 | newline
    the first line of a file is {"format":1}, every other one a pass; readers skip members of a pass
    that they do not know

It is text, so that grep and jq can read it, and every line is independent. When the newer file would
exceed half the bound, it replaces the older one. Lines are never synced: nothing depends on them, and a
pass must not wait. A kill of the process loses no written line; a crash of the machine may lose the
last ones, or tear one. Readers skip unsound lines; the writer cuts them off the file's end before the
next line.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from protocol.records.batch_scan import crc32c
from storage.files.errors import DiskError, MissingFile
from storage.files.files import File, FileSystem
from storage.files.paths import COMPACTION_HISTORY, COMPACTION_HISTORY_OLD, join
from storage.threads import any_thread

_log = logging.getLogger("storage.ledger.pass_history")

FORMAT = 1
CRC_CHARACTERS = 8
HEADER = {"format": FORMAT}

Entry = Mapping[str, Any]
"""A pass, as JSON types only. Readers can select by `topic` and `partition`."""


def encode_line(entry: Entry) -> bytes:
    """Returns a line of the file."""
    text = _json(entry)
    return b"%08x %s\n" % (crc32c(text), text)


def decode_line(line: bytes) -> dict[str, Any] | None:
    """Returns the object of a line without its newline; None if the line is not sound."""
    text = line[CRC_CHARACTERS + 1 :]
    if line[: CRC_CHARACTERS + 1] != b"%08x " % crc32c(text):
        return None
    try:
        entry = json.loads(text)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) else None


def sound_end(data: bytes) -> int:
    """Returns where the last sound line of a file ends; 0 if none is sound."""
    end = data.rfind(b"\n") + 1
    while end:
        start = data.rfind(b"\n", 0, end - 1) + 1
        if decode_line(data[start : end - 1]) is not None:
            return end
        end = start
    return 0


@any_thread
class PassHistory:
    """Appends to the history and reads it. All calls but `add` wait for the disk."""

    __slots__ = ("_added", "_bytes_max", "_directory", "_file", "_files", "_has_failed", "_lock")

    def __init__(self, files: FileSystem, directory: str, *, bytes_max: int) -> None:
        """Use an existing directory; both files together take at most `bytes_max`."""
        # Constant after construction
        self._files = files
        self._directory = directory
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        # State
        self._added: deque[Entry] = deque()
        """Passes without a line, in the order in which they ended."""
        self._file: File | None = None
        self._has_failed = False

    def add(self, entry: Entry) -> None:
        """Add a pass; `write` or `read` writes its line. A read finds all passes added before it."""
        self._added.append(entry)

    def write(self) -> None:
        """Write the lines of all added passes.

        If the disk refuses a line, it is lost; the first such failure is logged.
        """
        with self._lock:
            self._write()

    def read(
        self, *, topic: str | None = None, partition: int | None = None, limit: int
    ) -> list[dict[str, Any]]:
        """Returns the last passes over a topic, or over all topics, newest first.

        Raises:
            DiskError: a file cannot be read.
        """
        found: list[dict[str, Any]] = []
        with self._lock:
            self._write()
            for entry in self._newest_first(_json({"topic": topic})[1:-1] if topic else b""):
                if len(found) == limit:
                    break
                if topic in (None, entry.get("topic")) and partition in (
                    None,
                    entry.get("partition"),
                ):
                    found.append(entry)
        return found

    def close(self) -> None:
        """Write what is added and close the file; the next line opens it again."""
        with self._lock:
            self._write()
            self._close()

    def _write(self) -> None:
        while self._added:
            try:
                self._append(encode_line(self._added.popleft()))
            except DiskError as error:
                if not self._has_failed:
                    _log.warning("cannot write the history of cleaning passes: %s", error)
                self._has_failed = True
                self._close()
            else:
                self._has_failed = False

    def _append(self, line: bytes) -> None:
        if self._bytes_max == 0:
            return
        file = self._opened()
        if file.size + len(line) > self._bytes_max // 2 and file.size > len(encode_line(HEADER)):
            self._close()
            self._files.rename(self._path(COMPACTION_HISTORY), self._path(COMPACTION_HISTORY_OLD))
            file = self._opened()
        file.append([line])

    def _opened(self) -> File:
        """Returns the newer file, cut after its last sound line."""
        if self._file is None:
            path = self._path(COMPACTION_HISTORY)
            file = self._files.open(path, create=not self._files.exists(path))
            end = sound_end(file.read_at(0, file.size))
            if end < file.size:
                _log.warning("%s: cutting off %d bytes torn by a crash", path, file.size - end)
                file.truncate(end)
            if end == 0:
                file.append([encode_line(HEADER)])
            self._file = file
        return self._file

    def _newest_first(self, wanted: bytes) -> Iterator[dict[str, Any]]:
        """Yield the passes whose lines contain these bytes."""
        for name in (COMPACTION_HISTORY, COMPACTION_HISTORY_OLD):
            for line in reversed(self._bytes_of(name).split(b"\n")[:-1]):
                if wanted in line and (entry := decode_line(line)) is not None and "topic" in entry:
                    yield entry

    def _bytes_of(self, name: str) -> bytes:
        try:
            return self._files.read_bytes(self._path(name))
        except MissingFile:
            return b""

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _path(self, name: str) -> str:
        return join(self._directory, name)


def _json(entry: Entry) -> bytes:
    return json.dumps(entry, separators=(",", ":")).encode()
