"""Verifies a segment's two index files against its batches.

    offset index  entries grow, and at each position stands the batch whose last offset the entry has
    time index    entries grow, and each one's offset ends the first batch that has its timestamp,
                  which is the largest up to there

An index is a hint: readers check the batch that it leads to, so a wrong entry costs time, not data.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from protocol.records.batch_scan import ScannedBatch
from storage.files.errors import MissingFile
from storage.files.files import FileSystem
from storage.segment.sealed_index import OFFSET_ENTRY, TIME_ENTRY, EntryFile
from storage.verify.findings import Check, Findings


class IndexVerification:
    """Walks the index entries along with the batches of their segment. `finish` ends it."""

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
        """Open the two index files.

        Args:
            is_settled: nothing was appended since the files were written. Otherwise they may be missing
                or name batches that a crash cut off, because sealing the segment writes them again.
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
                self._offsets.report(f"{text} is at byte {entry[1]}, where there is none")
            entry = self._offsets.advance()

    def _take_time(self, relative_last: int) -> None:
        """Check an entry for a batch that is younger than all before it: only such batches have one."""
        entry = self._times.next
        while entry is not None and entry[1] <= relative_last:
            if entry[0] != -1 and entry != (self._youngest, relative_last):
                text = f"it says that {entry[0]} at offset {entry[1] + self._base_offset}"
                self._times.report(f"{text} is the largest timestamp so far")
            entry = self._times.advance()

    def finish(self) -> None:
        """Report the entries that no batch has confirmed."""
        if self._times.next == (-1, 0):
            self._times.advance()
        self._offsets.finish()
        self._times.finish()


class _Entries:
    """The entries of one index file, in order, each compared with the previous one."""

    __slots__ = ("_add_finding", "_entries", "_path", "next")

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
        self._add_finding = findings.warn if is_settled else findings.note
        self._entries: Iterator[tuple[int, int]] = iter(())
        try:
            file = EntryFile(fs, path, entry)
            self._entries = (file[index] for index in range(file.count))
        except MissingFile:
            if is_settled:
                self.report("the file is missing; it is rebuilt when it is needed")
        except ValueError:
            self.report("it ends inside an entry; it is rebuilt when it is needed")
        self.next: tuple[int, int] | None = None
        self.advance()

    def advance(self) -> tuple[int, int] | None:
        """Go to the next entry. Returns None after the last one."""
        last, self.next = self.next, next(self._entries, None)
        if last and self.next and (self.next[0] <= last[0] or self.next[1] < last[1]):
            self.report(f"entry {self.next} follows {last}")
        return self.next

    def finish(self) -> None:
        """Report the remaining entries: no batch is where they point."""
        rest = 0
        while self.next is not None:
            rest += 1
            self.advance()
        if rest:
            self.report(f"its last {rest} entries name no batch of the segment")

    def report(self, text: str) -> None:
        """Report that the file is wrong."""
        self._add_finding(Check.INDEX, self._path, text)
