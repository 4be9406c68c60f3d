"""A segment's two index files against its batches.

    offset index  entries grow, and at each position stands the batch whose last offset the entry has
    time index    entries grow, and each one's offset ends the first batch that has its timestamp,
                  which is the largest up to there

An index is a hint: whoever reads it looks at the batch it leads to, so a wrong one costs time, not data.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from protocol.batch_scan import ScannedBatch
from storage.errors import MissingFile
from storage.files import FileSystem
from storage.findings import Check, Findings
from storage.sealed_index import OFFSET_ENTRY, TIME_ENTRY, EntryFile


class IndexVerification:
    """Goes through the entries beside the batches of their segment. `finish` ends it."""

    __slots__ = ("_base_offset", "_offsets", "_times", "_youngest")

    def __init__(
        self,
        fs: FileSystem,
        offset_path: str,
        time_path: str,
        *,
        base_offset: int,
        is_settled: bool,
        findings: Findings,
    ) -> None:
        """`is_settled`: nothing was appended since the files were written. Else they may be missing,
        or tell of what a crash cut off: they are written anew when the segment is sealed.
        """
        # Constant after construction
        self._base_offset = base_offset
        # State
        self._offsets = _Entries(fs, offset_path, OFFSET_ENTRY, findings, is_settled=is_settled)
        self._times = _Entries(fs, time_path, TIME_ENTRY, findings, is_settled=is_settled)
        self._youngest = -1

    def take(self, batch: ScannedBatch, position: int, _: memoryview) -> None:
        """Compare with the segment's next batch."""
        relative_last = batch.last_offset - self._base_offset
        self._take_offset(relative_last, position)
        if batch.record_count and batch.max_timestamp > self._youngest:
            self._youngest = batch.max_timestamp
            self._take_time(relative_last)

    def _take_offset(self, relative_last: int, position: int) -> None:
        entry = self._offsets.next
        while entry is not None and entry[1] <= position:
            if entry != (relative_last, position):
                text = f"it says that a batch with last offset {entry[0] + self._base_offset}"
                self._offsets.lies(f"{text} is at byte {entry[1]}, where there is none")
            entry = self._offsets.advance()

    def _take_time(self, relative_last: int) -> None:
        """A batch is younger than all before it: only such ones have entries."""
        entry = self._times.next
        while entry is not None and entry[1] <= relative_last:
            if entry[0] != -1 and entry != (self._youngest, relative_last):
                text = f"it says that {entry[0]} at offset {entry[1] + self._base_offset}"
                self._times.lies(f"{text} is the largest timestamp so far")
            entry = self._times.advance()

    def finish(self) -> None:
        """Say which entries no batch has confirmed."""
        if self._times.next == (-1, 0):
            self._times.advance()
        self._offsets.finish()
        self._times.finish()


class _Entries:
    """The entries of one index file, in order, each compared with its predecessor."""

    __slots__ = ("_entries", "_path", "_say", "next")

    def __init__(
        self,
        fs: FileSystem,
        path: str,
        entry: struct.Struct,
        findings: Findings,
        *,
        is_settled: bool,
    ) -> None:
        self._path = path
        self._say = findings.warn if is_settled else findings.note
        self._entries: Iterator[tuple[int, int]] = iter(())
        try:
            file = EntryFile(fs, path, entry)
            self._entries = (file[index] for index in range(file.count))
        except MissingFile:
            if is_settled:
                self.lies("it is missing, and made anew when it is needed")
        except ValueError:
            self.lies("it ends inside an entry, and is made anew when it is needed")
        self.next: tuple[int, int] | None = None
        self.advance()

    def advance(self) -> tuple[int, int] | None:
        """Go to the next entry; None behind the last one."""
        last, self.next = self.next, next(self._entries, None)
        if last and self.next and (self.next[0] <= last[0] or self.next[1] < last[1]):
            self.lies(f"entry {self.next} follows {last}")
        return self.next

    def finish(self) -> None:
        """Say what is left: no batch is where it points to."""
        rest = 0
        while self.next is not None:
            rest += 1
            self.advance()
        if rest:
            self.lies(f"its last {rest} entries name no batch of the segment")

    def lies(self, text: str) -> None:
        """Say that the file is not what it must be."""
        self._say(Check.INDEX, self._path, text)
