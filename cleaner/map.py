"""Map the dirty section: for each key in it, the offset of its last record.

Where the section meets a transaction, it is first walked to its end for what became of each one:
aborted records are never mapped, and the map ends before the first that is not decided.

Source: Apache Kafka, Cleaner.java `buildOffsetMap`; KAFKA-3894 (a full map ends the pass early),
KAFKA-8764 (offsets that are missing at a segment's end must not be mapped for ever).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cleaner.kernel import OffsetMap, Transactions, map_batches
from cleaner.meter import PassMeter
from cleaner.scan import ReadableSegment, scan_segment
from cleaner.step import MapStep, MapStop, WalkStep


class MapTooSmall(Exception):
    """The offset map cannot hold the keys of one single batch, so cleaning can never go on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DirtySection:
    """What is to be mapped: [start_offset, end_offset) of `segments`, which hold that range."""

    segments: Sequence[ReadableSegment]
    start_offset: int
    end_offset: int
    is_settled: bool = False
    """Whether a pass went through it: then what is left of transactions was committed."""

    def keys_max(self) -> int | None:
        """An upper bound of the distinct keys; None if a segment does not know its records."""
        counts = [segment.row.record_count for segment in self.segments]
        return sum(counts) if all(count >= 0 for count in counts) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class MappedSection:
    """How much of a dirty section the map holds, and what was learned on the way."""

    end_offset: int
    """Where the map ends: `bound_offset`, or the base of the batch that did not fit any more."""
    bound_offset: int
    """The section's end or, if a transaction in it is not decided, where that begins."""
    transactions: Transactions | None = None
    """What became of the transactions in it; None if it has none."""


def map_dirty_section(
    section: DirtySection,
    offset_map: OffsetMap,
    *,
    decompressed_bytes_max: int,
    chunk_bytes: int,
    meter: PassMeter,
) -> MappedSection:
    """Fill `offset_map` with the keys of a section, as many as it takes.

    Raises:
        MapTooSmall: already the first batch has more records than the map takes.
        CorruptBatch, DecompressionTooLarge, CleaningAborted, StorageError: see `scan_segment`.
    """
    mapping = _Mapping(section, offset_map, decompressed_bytes_max, chunk_bytes, meter)
    keys_max = section.keys_max()
    stop = mapping.fill(keys_max)
    if stop is MapStop.FULL and keys_max is not None and offset_map.capacity == max(keys_max, 1):
        # The counts of records are only a hint: one that is too low must not end the pass early.
        stop = mapping.fill(None)
    if stop is not MapStop.FULL:
        # Offsets may be missing before the end: what is not there is mapped.
        offset_map.end_offset = mapping.bound_offset
    elif offset_map.end_offset <= section.start_offset:
        raise MapTooSmall(
            f"the offset map takes {offset_map.capacity} keys, fewer than one batch has records:"
            " raise log.cleaner.dedupe.buffer.size"
        )
    return MappedSection(
        end_offset=offset_map.end_offset,
        bound_offset=mapping.bound_offset,
        transactions=mapping.transactions,
    )


class _Mapping:
    """A section on its way into the map."""

    __slots__ = (
        "_bytes_max", "_chunk_bytes", "_meter", "_offset_map", "_section", "_stop", "transactions",
    )  # fmt: skip

    def __init__(
        self,
        section: DirtySection,
        offset_map: OffsetMap,
        decompressed_bytes_max: int,
        chunk_bytes: int,
        meter: PassMeter,
    ) -> None:
        # Constant after construction.
        self._section = section
        self._offset_map = offset_map
        self._bytes_max = decompressed_bytes_max
        self._chunk_bytes = chunk_bytes
        self._meter = meter
        # State: the transactions once the section was walked for them, and why mapping stopped last.
        self.transactions = self._no_transactions() if section.is_settled else None
        self._stop = MapStop.NEED_MORE

    @property
    def bound_offset(self) -> int:
        """Where the map must end."""
        if self.transactions is None:
            return self._section.end_offset
        return self.transactions.end_offset

    def fill(self, keys_max: int | None) -> MapStop:
        """Empty the map and fill it; why it came no further."""
        self._offset_map.clear(keys_max)
        self._offset_map.end_offset = self._section.start_offset
        for number, segment in enumerate(self._section.segments):
            if not self._map_segment(number):
                break
            row_end = segment.row.end_offset
            self._offset_map.end_offset = max(self._offset_map.end_offset, row_end)
        return self._stop

    def _map_segment(self, number: int) -> bool:
        """Map a segment; False if the map ends in it."""

        def step(chunk: bytes, position: int) -> MapStep | None:
            taken = map_batches(
                chunk,
                self._offset_map,
                start_offset=self._section.start_offset,
                end_offset=self.bound_offset,
                decompressed_bytes_max=self._bytes_max,
                position=position,
                transactions=self.transactions,
            )
            self._stop = taken.stop
            if taken.stop is MapStop.TRANSACTION:
                self.transactions = self._walk(number, position + taken.consumed_bytes)
                return taken
            return taken if taken.stop is MapStop.NEED_MORE else None

        segment = self._section.segments[number]
        return scan_segment(segment, step, chunk_bytes=self._chunk_bytes, meter=self._meter)

    def _walk(self, number: int, position: int) -> Transactions:
        """Learn what became of the transactions from a place in a segment on."""
        transactions = self._no_transactions()

        def step(chunk: bytes, position: int) -> WalkStep | None:
            walked = transactions.walk(chunk, position=position)
            return None if walked.is_over else walked

        for segment in self._section.segments[number:]:
            if not scan_segment(
                segment, step, chunk_bytes=self._chunk_bytes, meter=self._meter, position=position
            ):
                break
            position = 0
        return transactions

    def _no_transactions(self) -> Transactions:
        return Transactions(
            start_offset=self._section.start_offset,
            end_offset=self._section.end_offset,
            decompressed_bytes_max=self._bytes_max,
        )
