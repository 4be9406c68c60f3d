"""Verifies the file of a log's aborted transactions against the log's batches and markers.

The file is written before each producer snapshot, so it must have a row for each ABORT below the newest
snapshot; a scan finds later ones. Readers do not look below the clean offset and the log start.
Compaction removes aborted records and leaves their markers, so a row may have no records left, or begin
before the remaining ones. But a row without its marker would hide what the producer wrote later.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.records.batch_scan import ScannedBatch
from protocol.records.control_record import ControlType
from protocol.records.record_batch import read_marker
from protocol.wire.errors import ProtocolError
from protocol.wire.numbers import Offset, ProducerId
from storage.files.errors import DamagedFile, FormatFromTheFuture
from storage.files.files import FileSystem
from storage.files.paths import ABORTED_TRANSACTIONS, join
from storage.state.aborted_transactions import Row, decode_aborted_transactions
from storage.state.open_transactions import NOT_OPEN
from storage.verify.findings import Check, Findings

TRANSACTIONAL_BIT, CONTROL_BIT = 0x10, 0x20


class AbortedVerification:
    """Replays the transactions of a log and compares them with the file. `finish` ends it."""

    __slots__ = ("_aborts", "_findings", "_is_known", "_open", "_path", "_rows", "_start_offset")

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        *,
        start_offset: int,
        must_exist: bool,
        findings: Findings,
        is_foreign: bool,
    ) -> None:
        """Read the file.

        Args:
            start_offset: offsets below it are not checked: the clean offset, or the log start.
            must_exist: whether the manifest says that the file exists.
            is_foreign: whether it is that of another log, so that it is not compared.
        """
        # Constant after construction
        self._start_offset = start_offset
        self._path = join(directory, ABORTED_TRANSACTIONS)
        self._is_known = not is_foreign
        rows = () if is_foreign else self._read(fs, findings, must_exist=must_exist)
        self._rows = {row[2]: row for row in rows}
        # State
        self._findings = findings
        self._open: dict[ProducerId, Offset] = {}
        self._aborts: dict[Offset, tuple[ProducerId, Offset]] = {}
        """By the ABORT's offset: its producer, and the first offset left of its transaction or -1."""

    def _read(self, fs: FileSystem, findings: Findings, *, must_exist: bool) -> Sequence[Row]:
        try:
            if fs.exists(self._path):
                return decode_aborted_transactions(fs.read_bytes(self._path), self._path).rows
            if must_exist:
                self._is_known = False
                text = "the file is missing; the aborted transactions are read from the batches instead"
                findings.error(Check.TRANSACTIONS, self._path, text)
        except DamagedFile as error:
            self._is_known = False
            text = f"{error.reason}; the aborted transactions are read from the batches instead"
            findings.warn(Check.TRANSACTIONS, self._path, text)
        except FormatFromTheFuture as error:
            self._is_known = False
            findings.error(Check.TRANSACTIONS, self._path, str(error))
        return ()

    def take(self, batch: ScannedBatch, _: int, data: memoryview) -> None:
        """Process the log's next batch."""
        if batch.attributes & CONTROL_BIT:
            first_offset = self._open.pop(batch.producer_id, NOT_OPEN)
            if _is_abort(data):
                self._aborts[batch.last_offset] = (batch.producer_id, first_offset)
        elif batch.attributes & TRANSACTIONAL_BIT and self._is_visible(batch):
            visible = max(batch.base_offset, Offset(self._start_offset))
            self._open.setdefault(batch.producer_id, visible)

    def _is_visible(self, batch: ScannedBatch) -> bool:
        """Returns whether a reader may see records of the batch."""
        return batch.record_count > 0 and batch.last_offset >= self._start_offset

    def finish(self, log_end_offset: int, *, known_to: int) -> None:
        """Compare the file with the replay; `known_to` is the offset of the newest snapshot."""
        if not self._is_known:
            return
        for marker_offset, (producer_id, first_offset) in self._aborts.items():
            row = self._rows.get(marker_offset)
            is_needed = first_offset >= 0 and marker_offset < known_to
            if is_needed and (row is None or row[0] != producer_id or row[1] > first_offset):
                text = (
                    f"producer {producer_id} aborted [{first_offset}, {marker_offset}]; row: {row}"
                )
                self._findings.error(Check.TRANSACTIONS, self._path, text)
        for row in self._rows.values():
            self._check_row(row, log_end_offset)

    def _check_row(self, row: Row, log_end_offset: int) -> None:
        producer_id, _, marker_offset = row
        if marker_offset >= log_end_offset:
            text = f"the ABORT at {marker_offset} was lost in a crash"
            self._findings.note(Check.TRANSACTIONS, self._path, text)
        elif marker_offset >= self._start_offset:
            found = self._aborts.get(marker_offset)
            if found is None or found[0] != producer_id:
                text = f"producer {producer_id} has no ABORT at {marker_offset}:"
                text += " readers would skip what it commits later"
                self._findings.error(Check.TRANSACTIONS, self._path, text)


def _is_abort(data: memoryview) -> bool:
    try:
        marker = read_marker(data)
    except ProtocolError:
        return False
    return marker is not None and marker.type is ControlType.ABORT
