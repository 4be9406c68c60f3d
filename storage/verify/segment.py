"""Verifies the batches of one segment, and the manifest's row against them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from protocol.records.batch_header import CONTROL, HEADER_BYTES
from protocol.records.batch_scan import ScannedBatch
from protocol.records.compression import Codec, decompress
from protocol.records.record_walk import scan_records
from protocol.wire.errors import CorruptBatch, DecompressionTooLarge
from protocol.wire.numbers import Offset
from storage.batches.chunks import Unsound, read_chunks
from storage.files.files import File
from storage.formats.manifest import UNKNOWN, UNKNOWN_OFFSET, SegmentRow
from storage.log.roll import OFFSET_SPAN_MAX
from storage.verify.findings import Check, Findings, LogReport

DECOMPRESSED_BYTES_MAX = 1 << 30
"""The cleaner's bound: it never cleans a batch that decompresses to more."""

CODEC_BITS = 0x07
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

Take = Callable[[ScannedBatch, int, memoryview], None]
"""Receives a sound batch, its position in the segment's file, and its bytes."""

Progress = Callable[[int], None]
"""Receives the number of bytes read since the last call."""


@dataclass(slots=True, kw_only=True)
class SegmentContents:
    """Sums over a segment's sound batches, up to the first unsound one."""

    base_offset: Offset
    end_offset: Offset = field(init=False)
    size: int = 0
    record_count: int = 0
    control_count: int = 0
    max_timestamp: int = UNKNOWN
    offset_of_max_timestamp: Offset = UNKNOWN_OFFSET
    least_delete_horizon_ms: int = UNKNOWN
    is_whole: bool = True

    def __post_init__(self) -> None:
        self.end_offset = self.base_offset

    def take(self, batch: ScannedBatch, position: int) -> None:
        """Add the next batch."""
        self.size = position + batch.size_bytes
        self.end_offset = batch.next_offset
        self.record_count += batch.record_count
        if batch.attributes & CONTROL:
            self.control_count += batch.record_count
        if batch.record_count and batch.max_timestamp > self.max_timestamp:
            self.max_timestamp = batch.max_timestamp
            self.offset_of_max_timestamp = batch.last_offset
        if batch.attributes & DELETE_HORIZON_BIT:
            known = self.least_delete_horizon_ms
            horizon = batch.base_timestamp
            self.least_delete_horizon_ms = horizon if known == UNKNOWN else min(known, horizon)


class SegmentVerification:
    """Reads one segment's file from front to back, once. `run` returns what it holds."""

    __slots__ = (
        "_cleaned",
        "_contents",
        "_findings",
        "_is_truncated",
        "_next_offset",
        "_path",
        "_report",
        "_row",
        "_row_is_checked",
        "_takes",
    )

    def __init__(
        self,
        row: SegmentRow,
        takes: tuple[Take, ...],
        *,
        cleaned: range,
        is_truncated: bool,
        findings: Findings,
        report: LogReport,
    ) -> None:
        """
        Args:
            takes: called with every sound batch, in order.
            cleaned: offsets at which a cleaning pass leaves no record without a key.
            is_truncated: see `check_row`.
        """
        # Constant after construction
        self._row = row
        self._takes = takes
        self._cleaned = cleaned
        self._is_truncated = is_truncated
        # State
        self._path = ""
        self._findings = findings
        self._report = report
        self._contents = SegmentContents(base_offset=row.base_offset)
        self._next_offset = row.base_offset
        self._row_is_checked = row.end_offset == UNKNOWN

    def run(self, file: File, size: int, progress: Progress) -> SegmentContents:
        """Verify [0, size) of the file. Raises DiskError."""
        self._path = file.path
        reached = 0
        for part in read_chunks(file, 0, size):
            if isinstance(part, Unsound):
                self._unsound(part)
                end = part.end_position
            else:
                for batch in part.batches:
                    self._batch(batch, part.position + batch.position, part.data)
                end = part.position + part.batches[-1].position + part.batches[-1].size_bytes
            progress(end - reached)
            reached = end
        self._check_row()
        return self._contents

    def _check_row(self) -> None:
        """Compare with the row at the row's end, because the active segment continues after it."""
        if not self._row_is_checked:
            self._row_is_checked = True
            check_row(
                self._row,
                self._contents,
                self._path,
                self._findings,
                is_truncated=self._is_truncated,
            )

    def _unsound(self, part: Unsound) -> None:
        """Report unsound bytes; how severe depends on whether a crash may have left them."""
        is_first = self._contents.is_whole
        self._contents.is_whole = False
        bytes_left = part.end_position - part.position
        if part.position < max(self._row.size, 0):
            rest = f"; the {bytes_left} bytes from there on were not read" if part.is_last else ""
            self._findings.error(Check.BATCH, self._path, part.reason + rest, part.position)
        elif not is_first:
            return
        elif part.is_last:
            text = f"the last {bytes_left} bytes are torn by a crash or being written just now"
            self._findings.note(Check.BATCH, self._path, f"{text}: {part.reason}", part.position)
        else:
            text = "recovery would cut the log here, although sound batches follow"
            self._findings.warn(Check.BATCH, self._path, f"{text}: {part.reason}", part.position)

    def _batch(self, batch: ScannedBatch, position: int, data: memoryview) -> None:
        if position >= self._row.size:
            self._check_row()
        self._report.batches += 1
        self._report.records += batch.record_count
        self._report.bytes += batch.size_bytes
        self._check_place(batch, position)
        if position >= self._row.size and not self._contents.is_whole:
            return  # Recovery will cut it off: its offset may be torn, which no CRC covers.
        if batch.record_count:
            at = batch.position
            self._check_records(batch, position, data[at + HEADER_BYTES : at + batch.size_bytes])
        elif batch.size_bytes > HEADER_BYTES:
            text = f"an empty batch has {batch.size_bytes - HEADER_BYTES} bytes of records"
            self._findings.error(Check.RECORDS, self._path, text, position)
        # Behind damage the row's sums are useless, but epochs and producers are still checked.
        if self._contents.is_whole:
            self._contents.take(batch, position)
        self._next_offset = batch.next_offset
        whole = data[batch.position : batch.position + batch.size_bytes]
        for take in self._takes:
            take(batch, position, whole)

    def _check_place(self, batch: ScannedBatch, position: int) -> None:
        row, text = self._row, None
        if batch.base_offset < row.base_offset:
            text = f"offset {batch.base_offset} is below the segment's base"
        elif batch.base_offset < self._next_offset:
            text = f"offset {batch.base_offset} follows {self._next_offset - 1}"
        elif batch.last_offset - row.base_offset > OFFSET_SPAN_MAX:
            text = f"offset {batch.last_offset} is too far from the segment's base for its indexes"
        elif position < row.size and batch.next_offset > row.end_offset:
            text = f"offset {batch.last_offset} is past the segment's end {row.end_offset}"
        if text is None:
            self._check_gap(batch, position)
        elif position < row.size:
            self._findings.error(Check.BATCH, self._path, text, position)
        elif self._contents.is_whole:
            # The CRC does not cover the base offset, and a crash may have torn just that.
            text = f"recovery would cut the log here: {text}"
            self._findings.warn(Check.BATCH, self._path, text, position)
            self._contents.is_whole = False

    def _check_gap(self, batch: ScannedBatch, position: int) -> None:
        """Report a gap. A leader appends offset by offset; only the cleaner and followers leave any."""
        is_explained = self._row.is_cleaned or not self._contents.is_whole
        if batch.base_offset > self._next_offset and not is_explained:
            text = f"no batch has the offsets [{self._next_offset}, {batch.base_offset})"
            self._findings.note(
                Check.BATCH, self._path, f"{text}, as in a follower's log", position
            )

    def _check_records(self, batch: ScannedBatch, position: int, packed: memoryview) -> None:
        """Check that the records are whole, in order and as many as the header says."""
        is_control = bool(batch.attributes & CONTROL_BIT)
        span = batch.next_offset - batch.base_offset
        try:
            codec = Codec(batch.attributes & CODEC_BITS)
            plain = decompress(codec, packed, bytes_max=DECOMPRESSED_BYTES_MAX)
            is_dense = span == batch.record_count
            found = scan_records(
                plain, batch.record_count, base_timestamp=batch.base_timestamp, dense=is_dense
            )
        except (CorruptBatch, DecompressionTooLarge, ValueError) as error:
            self._findings.error(Check.RECORDS, self._path, str(error), position)
            return
        if is_control and batch.record_count != 1:
            text = f"a control batch has {batch.record_count} records"
            self._findings.error(Check.RECORDS, self._path, text, position)
        if found.last_offset_delta >= span:
            text = (
                f"its last record is at offset delta {found.last_offset_delta}, in {span} offsets"
            )
            self._findings.error(Check.RECORDS, self._path, text, position)
        # The cleaner keeps the last batch below a pass's bound with any content, hence `_cleaned`.
        keyless = found.first_keyless >= 0 and not is_control
        if keyless and batch.last_offset in self._cleaned:
            text = f"record {found.first_keyless} of a cleaned batch has no key"
            self._findings.warn(Check.KEYS, self._path, text, position)


def check_row(
    row: SegmentRow, found: SegmentContents, path: str, findings: Findings, *, is_truncated: bool
) -> None:
    """Compare a row that has its segment's end with the segment's batches.

    Args:
        is_truncated: the log may have been truncated: the counts of a truncated segment's row may
            then exceed those of the batches that are left.
    """
    assert row.end_offset != UNKNOWN
    if not found.is_whole:
        return
    if found.size != row.size:
        text = f"its batches end at byte {found.size}, but the manifest says {row.size}"
        findings.error(Check.ROW, path, text)
    if found.end_offset > row.end_offset:
        text = f"its batches end at offset {found.end_offset}, the manifest says {row.end_offset}"
        findings.error(Check.ROW, path, text)
    for name in _numbers_to_compare(row, found):
        listed, counted = getattr(row, name), getattr(found, name)
        if listed not in (counted, UNKNOWN):
            words = name.removesuffix("_ms").replace("_", " ")
            text = f"the manifest says {words} {listed}, the batches {counted}"
            is_bound = is_truncated and listed > counted
            report = findings.note if is_bound else findings.warn
            report(Check.ROW, path, text + (", as after a truncation" if is_bound else ""))


def _numbers_to_compare(row: SegmentRow, found: SegmentContents) -> list[str]:
    names = ["record_count", "control_count", "max_timestamp"]
    if row.least_delete_horizon_ms < found.least_delete_horizon_ms:
        # A later one is right if the batch with the smallest has lost its tombstones.
        names.append("least_delete_horizon_ms")
    if row.max_timestamp == found.max_timestamp:
        names.append("offset_of_max_timestamp")
    return names
