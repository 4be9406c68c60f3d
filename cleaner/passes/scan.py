"""Read a segment to its end in chunks that begin at a batch.

The kernel returns how many bytes of a chunk it consumed; the next chunk begins there, so a batch that
was cut is read again with the next chunk. That read comes from the page cache, so it is counted only
once. A batch larger than a chunk gets a chunk of its own size, bounded by the rest of the segment: a
false size is corruption, and never allocates memory.

Source: Apache Kafka, Cleaner.java `growBuffersOrFail`; KAFKA-4298, KAFKA-6834.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

from cleaner.pacing.meter import PassMeter
from cleaner.rules.text import count_text
from protocol.wire.errors import CorruptBatch
from storage.formats.manifest import SegmentRow


class ReadableSegment(Protocol):
    """A sealed segment whose file stays readable as long as this handle is held."""

    @property
    def row(self) -> SegmentRow: ...
    def read_at(self, position: int, size: int) -> bytes:
        """Returns at most `size` bytes; fewer only at the segment's end."""


class Advance(Protocol):
    """The progress of one kernel step; `IndexStep` and `ReadStep` have these fields."""

    @property
    def consumed_bytes(self) -> int: ...
    @property
    def needed_bytes(self) -> int: ...


A = TypeVar("A", bound=Advance)


def scan_segment(
    segment: ReadableSegment,
    step: Callable[[bytes, int], A],
    *,
    chunk_bytes: int,
    meter: PassMeter,
    start: int = 0,
) -> Iterator[A]:
    """Call `step` for each chunk of a segment and its position, and yield the results.

    Args:
        start: the position of the batch with which it begins.

    Raises:
        CorruptBatch: the segment ends inside a batch or before its size.
        CleaningAborted: see `PassMeter`; checked for each chunk.
        StorageError: reading failed.
    """
    position, end = start, segment.row.size
    wanted = chunk_bytes
    counted = start
    while position < end:
        chunk = read_exactly(segment, position, min(wanted, end - position))
        meter.read(max(position + len(chunk) - counted, 0))
        counted = max(position + len(chunk), counted)
        advance = step(chunk, position)
        position += advance.consumed_bytes
        needed = advance.needed_bytes
        _check(
            needed <= end - position,
            segment,
            position,
            f"batch claims {count_text(needed, 'byte')}",
        )
        assert advance.consumed_bytes or needed > len(chunk), "a step made no progress"
        wanted = max(chunk_bytes, needed)
        yield advance


def read_exactly(segment: ReadableSegment, position: int, size: int) -> bytes:
    """Returns `size` bytes of a segment.

    Raises:
        CorruptBatch: the segment ends earlier.
        StorageError: reading failed.
    """
    data = segment.read_at(position, size)
    _check(len(data) == size, segment, position, "file ends early")
    return data


def _check(holds: bool, segment: ReadableSegment, position: int, problem: str) -> None:
    if not holds:
        row = segment.row
        raise CorruptBatch(
            f"segment {row.base_offset:020}.v{row.file_version}, position {position}: {problem},"
            f" {count_text(row.size - position, 'byte')} left"
        )
