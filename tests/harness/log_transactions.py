"""A model of a log's transactions: which of them each offset belongs to, and what readers then see."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from protocol.records.batch_header import read_header
from protocol.records.control_record import ControlType
from protocol.records.record_batch import read_marker
from storage.log.log import PartitionLog
from storage.segment.reader import Isolation
from tests.harness.log_builder import records_in
from tests.harness.log_home import Answer, answers


@dataclass(slots=True)
class Transaction:
    """One transaction in a log."""

    producer_id: int
    offsets: set[int] = field(default_factory=set)
    """The offsets of its records, including removed ones."""
    marker_offset: int | None = None
    is_commit: bool = False

    def is_decided_below(self, end_offset: int) -> bool:
        """Returns whether a log with this end contains its marker."""
        return self.marker_offset is not None and self.marker_offset < end_offset


class TransactionModel:
    """The transactions of one log, as the code that appended them knows them."""

    def __init__(self) -> None:
        self.all: list[Transaction] = []
        self.markers: set[int] = set()

    def send(self, producer_id: int, offsets: Iterable[int]) -> None:
        """Add records to the producer's open transaction, or to a new one."""
        found = self.open_of(producer_id)
        if found is None:
            found = Transaction(producer_id)
            self.all.append(found)
        found.offsets.update(offsets)

    def end(self, producer_id: int, marker_offset: int, *, is_commit: bool) -> None:
        """End the producer's open transaction, if any."""
        self.markers.add(marker_offset)
        found = self.open_of(producer_id)
        if found is not None:
            found.marker_offset, found.is_commit = marker_offset, is_commit

    def open_of(self, producer_id: int) -> Transaction | None:
        """Returns the producer's open transaction."""
        mine = (each for each in self.all if each.producer_id == producer_id)
        return next((each for each in mine if each.marker_offset is None), None)

    def cut(self, end_offset: int) -> None:
        """Apply a truncation of the log to `end_offset`."""
        for each in self.all:
            each.offsets = {at for at in each.offsets if at < end_offset}
            if not each.is_decided_below(end_offset):
                each.marker_offset = None
        self.all = [each for each in self.all if each.offsets]
        self.markers = {at for at in self.markers if at < end_offset}

    def last_stable_offsets(self, start_offset: int, high_watermark: int) -> set[int]:
        """Returns the last stable offsets that a log with these offsets may have.

        The log may know of a transaction that began below the log start (a snapshot stores its start)
        or not (after a scan of the log); in neither case it returns a record of it.
        """
        open_ones = [
            each.offsets
            for each in self.all
            if min(each.offsets) < high_watermark and not each.is_decided_below(high_watermark)
        ]
        known = [min(offsets) for offsets in open_ones]
        there = [at for offsets in open_ones for at in offsets if at >= start_offset]
        return {max(start_offset, min([high_watermark, *seen])) for seen in (known, there)}

    def aborted(self, end_offset: int) -> set[int]:
        """Returns the offsets of aborted records in a log with this end."""
        return {
            at
            for each in self.all
            if each.is_decided_below(end_offset) and not each.is_commit
            for at in each.offsets
        }

    def undecided(self, end_offset: int) -> set[int]:
        """Returns the offsets of records without a deciding marker below `end_offset`."""
        return {
            at for each in self.all if not each.is_decided_below(end_offset) for at in each.offsets
        }

    def marker_of_any(self, offsets: set[int]) -> int:
        """Returns the last marker of the transactions with any of these records; -1 if there is none."""
        markers = (each.marker_offset for each in self.all if each.offsets & offsets)
        return max((at for at in markers if at is not None), default=-1)

    def check(self, log: PartitionLog, content: Mapping[int, object]) -> None:
        """Check that a log with `content` returns exactly the committed records that are durable."""
        stable = log.last_stable_offset
        possible = self.last_stable_offsets(log.log_start_offset, log.high_watermark)
        assert stable in possible, (
            f"the last stable offset is {stable}, not among {sorted(possible)}: {self.all}"
        )
        hidden = self.aborted(log.high_watermark) | self.markers
        expected = [at for at in sorted(content) if at < stable and at not in hidden]
        found = committed_offsets(log)
        assert found == expected, f"readers see {found}, not {expected}: {self.all}"


def committed_offsets(log: PartitionLog, *, max_bytes: int = 300) -> list[int]:
    """Returns the offsets of the records that a read_committed consumer returns."""
    read = answers(log, Isolation.READ_COMMITTED, max_bytes=max_bytes)
    return [offset for answer in read for offset in _given_out(answer)]


def _given_out(answer: Answer) -> list[int]:
    """Returns the offsets that the Java client returns from one answer (`CompletedFetch`)."""
    data, aborted = answer.data, answer.aborted
    skipped: set[int] = set()
    offsets: list[int] = []
    position = 0
    while position < len(data):
        header = read_header(data, position)
        batch = data[position : position + header.size_bytes]
        position += header.size_bytes
        skipped |= {who for who, first in aborted if first <= header.last_offset}
        aborted = [each for each in aborted if each[1] > header.last_offset]
        if header.is_control:
            marker = read_marker(batch)
            if marker is not None and marker.type is ControlType.ABORT:
                skipped.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in skipped):
            offsets += [each.offset for each in records_in(batch) if each.offset >= answer.offset]
    return offsets
