"""Move records without a key to another topic, before the swap that drops them.

    read      only the blocks of the group whose sidecars count such records
    move      in chunks; each is durable in the other topic before the next one is read
    refused   the group keeps its records, and so does the rest of the pass

The recopy then drops exactly as many records as were moved, or the group is not swapped.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from cleaner.pacing.meter import PassMeter
from cleaner.passes.recopy import RecopiedSegment
from cleaner.passes.scan import read_exactly
from cleaner.passes.verify_pass import VerificationFailed
from cleaner.rules.record_verdict import Verdict
from cleaner.rules.report import Counts, sum_counts
from cleaner.rules.text import count_text
from cleaner.rules.unkeyed import UnkeyedRule
from protocol.records.batch_header import BatchHeader, read_header
from protocol.records.record import Record
from protocol.records.record_batch import read_records
from protocol.wire.errors import CorruptBatch, UnsupportedMagic

_log = logging.getLogger("cleaner.passes.unkeyed")

CHUNK_RECORDS = 500
CHUNK_BYTES = 256 << 10
"""Bounds of a chunk; a larger record is a chunk of its own."""


class MoveRefused(Exception):
    """The other topic cannot take records now, for a reason in a sentence. They must stay."""


class ChunkTooLarge(MoveRefused):
    """The other topic takes no batch of this size."""


class Mover(Protocol):
    """Appends to the other topic. Called in the thread of the pass."""

    def move(self, records: Sequence[Record]) -> None:
        """Append the records of a chunk; they are durable when this returns.

        Raises:
            MoveRefused: they may or may not be in the other topic.
            CleaningAborted: the pass must stop.
        """


class UnkeyedMove:
    """The moving part of one pass. Used by the pass's thread only."""

    __slots__ = (
        "_decompressed_bytes_max", "_meter", "_moved_of_group", "_mover", "_rule", "_why_not",
        "kept_because", "moved",
    )  # fmt: skip

    def __init__(
        self,
        mover: Mover | None,
        rule: UnkeyedRule,
        *,
        decompressed_bytes_max: int,
        meter: PassMeter,
        why_not: str,
    ) -> None:
        """
        Args:
            mover: None if nothing can be moved: all records stay.
            why_not: why there is no mover.
        """
        # Constant after construction.
        self._mover = mover
        self._rule = rule
        self._decompressed_bytes_max = decompressed_bytes_max
        self._meter = meter
        self._why_not = why_not
        # State.
        self.kept_because = ""
        """Why records stay; empty as long as all were moved."""
        self.moved = 0
        self._moved_of_group = 0

    def move(self, group: Iterable[RecopiedSegment]) -> bool:
        """Move the records of a group. Returns whether the pass may drop them.

        Raises:
            CorruptBatch, DecompressionTooLarge, CleaningAborted, StorageError, DamagedSidecar: as
                `Recopy.run`.
        """
        self._moved_of_group = 0
        chunk: list[Record] = []
        size = 0
        try:
            for record in self._records(group):
                if self.kept_because:
                    return False
                chunk.append(record)
                size += len(record.value or b"")
                if len(chunk) == CHUNK_RECORDS or size >= CHUNK_BYTES:
                    self._move(chunk)
                    chunk, size = [], 0
            self._move(chunk)
        except MoveRefused as refused:
            self.kept_because = str(refused)
            self._moved_of_group = 0
            _log.warning("records without a key stay: %s", refused)
            return False
        return True

    def check(self, by_source: Iterable[Counts]) -> None:
        """Compare what was dropped of the group with what was moved. Raises VerificationFailed."""
        count = sum_counts(by_source).get(Verdict.DROPPED_UNKEYED)
        dropped = 0 if count is None else count.records
        if dropped != self._moved_of_group:
            raise VerificationFailed(
                f"{count_text(dropped, 'record')} without a key would be dropped, and"
                f" {self._moved_of_group} were moved"
            )

    def _move(self, chunk: Sequence[Record]) -> None:
        if not chunk:
            return
        if self._mover is None:
            raise MoveRefused(self._why_not)
        try:
            self._mover.move(chunk)
        except ChunkTooLarge:
            if len(chunk) == 1:
                raise
            half = len(chunk) // 2
            self._move(chunk[:half])
            self._move(chunk[half:])
            return
        self.moved += len(chunk)
        self._moved_of_group += len(chunk)

    def _records(self, group: Iterable[RecopiedSegment]) -> Iterator[Record]:
        """Yields the records that the rule selects. Only blocks with records without a key are read."""
        for segment in group:
            for block in segment.blocks():
                if block.unkeyed_count:
                    data = read_exactly(segment, block.position, block.data_bytes)
                    self._meter.read(len(data))
                    yield from self._records_in(data)

    def _records_in(self, data: bytes) -> Iterator[Record]:
        position = 0
        while position < len(data):
            header = _header_at(data, position)
            if self._rule.may_move(header):
                records = read_records(
                    data, position, decompressed_bytes_max=self._decompressed_bytes_max
                )
                yield from self._rule.moved(header, records)
            position += header.size_bytes


def _header_at(data: bytes, position: int) -> BatchHeader:
    """Returns the header of a stored batch. Raises CorruptBatch also for another message format."""
    try:
        return read_header(data, position)
    except UnsupportedMagic as error:
        raise CorruptBatch(f"record batch at position {position}: {error}") from error
