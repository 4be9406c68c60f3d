"""Read a segment from a position to its end in chunks that begin at a batch.

The kernel says how many bytes of a chunk it took; the next chunk begins there, so a batch that a
chunk cut is read again with the next one: from the page cache, so it is counted once. A batch larger
than a chunk gets a chunk of its own size, bounded by the bytes that the segment still has: a size that
lies is corruption, never memory.

Source: Apache Kafka, Cleaner.java `growBuffersOrFail`; KAFKA-4298, KAFKA-6834.
"""

from __future__ import annotations

from typing import Protocol

from cleaner.meter import PassMeter
from protocol.errors import CorruptBatch
from storage.manifest import SegmentRow


class ReadableSegment(Protocol):
    """A sealed segment whose file stays readable as long as this handle is held."""

    @property
    def row(self) -> SegmentRow: ...
    def read_at(self, position: int, size: int) -> bytes:
        """At most `size` bytes; fewer only at the segment's end."""


class Advance(Protocol):
    """How a step of the kernel went on: `MapStep` and `FilterStep` are such."""

    @property
    def consumed_bytes(self) -> int: ...
    @property
    def needed_bytes(self) -> int: ...


class Step(Protocol):
    """Handles the whole batches of a chunk; None ends the scan."""

    def __call__(self, chunk: bytes, position: int) -> Advance | None: ...


def scan_segment(
    segment: ReadableSegment, step: Step, *, chunk_bytes: int, meter: PassMeter, position: int = 0
) -> bool:
    """Hand a segment to `step`, chunk by chunk; False if a step ended the scan.

    Args:
        position: where to begin; a batch begins there.

    Raises:
        CorruptBatch: the segment ends inside a batch or before its size.
        CleaningAborted: see `PassMeter`; within a chunk.
        StorageError: reading failed.
    """
    end = segment.row.size
    wanted = chunk_bytes
    stalls = 0
    counted = position
    while position < end:
        chunk = segment.read_at(position, min(wanted, end - position))
        _check(len(chunk) == min(wanted, end - position), segment, position, "file ends early")
        meter.read(max(position + len(chunk) - counted, 0))
        counted = max(position + len(chunk), counted)
        advance = step(chunk, position)
        if advance is None:
            return False
        position += advance.consumed_bytes
        needed = advance.needed_bytes
        _check(needed <= end - position, segment, position, f"batch claims {needed} bytes")
        wanted = max(chunk_bytes, needed)
        # A step may stop before its first batch once, to begin an output segment with it.
        stalls = 0 if advance.consumed_bytes or needed > len(chunk) else stalls + 1
        assert stalls < 2, "a step made no progress"
    return True


def _check(holds: bool, segment: ReadableSegment, position: int, problem: str) -> None:
    if not holds:
        row = segment.row
        raise CorruptBatch(
            f"segment {row.base_offset:020}.v{row.file_version}, position {position}: {problem},"
            f" {row.size - position} bytes are left"
        )
