"""Transactions beside a log: what each of its offsets belongs to, and what readers then see."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from protocol.control_record import ControlType
from protocol.record_batch import read_header, read_marker
from storage.log import PartitionLog
from storage.reader import Isolation
from tests.harness.log_builder import records_in
from tests.harness.log_home import Answer, answers


@dataclass(slots=True)
class Transaction:
    """One transaction in a log."""

    producer_id: int
    offsets: set[int] = field(default_factory=set)
    """Of its records, whether or not they are left."""
    marker_offset: int | None = None
    is_commit: bool = False

    def is_decided_below(self, end_offset: int) -> bool:
        """Whether a log that ends there has its marker."""
        return self.marker_offset is not None and self.marker_offset < end_offset


class TransactionModel:
    """The transactions of one log, as whoever appended them knows them."""

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
        """End the producer's transaction, if it has one open."""
        self.markers.add(marker_offset)
        found = self.open_of(producer_id)
        if found is not None:
            found.marker_offset, found.is_commit = marker_offset, is_commit

    def open_of(self, producer_id: int) -> Transaction | None:
        """The producer's open transaction."""
        mine = (each for each in self.all if each.producer_id == producer_id)
        return next((each for each in mine if each.marker_offset is None), None)

    def cut(self, end_offset: int) -> None:
        """Learn that nothing from `end_offset` on is in the log any more."""
        for each in self.all:
            each.offsets = {at for at in each.offsets if at < end_offset}
            if not each.is_decided_below(end_offset):
                each.marker_offset = None
        self.all = [each for each in self.all if each.offsets]
        self.markers = {at for at in self.markers if at < end_offset}

    def last_stable_offsets(self, start_offset: int, high_watermark: int) -> set[int]:
        """What it may be in a log with these offsets.

        A transaction's records below the log start may be known (a snapshot has where it began) or not
        (the log was scanned); neither shows a record of it.
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
        """The offsets of what was aborted, in a log that ends there."""
        return {
            at
            for each in self.all
            if each.is_decided_below(end_offset) and not each.is_commit
            for at in each.offsets
        }

    def undecided(self, end_offset: int) -> set[int]:
        """The offsets of what no marker below `end_offset` decides."""
        return {
            at for each in self.all if not each.is_decided_below(end_offset) for at in each.offsets
        }

    def marker_of_any(self, offsets: set[int]) -> int:
        """The last marker of transactions that have some of these records; -1 if there is none."""
        markers = (each.marker_offset for each in self.all if each.offsets & offsets)
        return max((at for at in markers if at is not None), default=-1)

    def check(self, log: PartitionLog, content: Mapping[int, object]) -> None:
        """A log that holds `content` shows committed records that are durable, and no others."""
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
    """The offsets of the records that a consumer with isolation.level=read_committed gives out."""
    read = answers(log, Isolation.READ_COMMITTED, max_bytes=max_bytes)
    return [offset for answer in read for offset in _given_out(answer)]


def _given_out(answer: Answer) -> list[int]:
    """What the Java client gives of one answer (`CompletedFetch`)."""
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
