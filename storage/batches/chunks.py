"""Reads the batches of a segment file in chunks and continues after unsound ones.

Recovery (`storage/batches/scan.py`) stops at the first unsound batch, because the log ends there. A
verification continues after that batch, as long as its length field leads to a place where something
sound begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from protocol.records.batch_scan import ScannedBatch, StopReason, scan_batches
from storage.batches.walk import claimed_bytes
from storage.files.files import File

CHUNK_BYTES = 4 << 20
BATCH_BYTES_MAX = 1 << 28
"""A larger length counts as damage, so that a flipped bit cannot make a reader allocate memory."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Whole, sound batches of a file."""

    position: int
    """The position of `data` in the file; the batches' positions are relative to it."""
    data: memoryview
    batches: list[ScannedBatch]


@dataclass(frozen=True, slots=True)
class Unsound:
    """Bytes that are not a sound batch."""

    position: int
    end_position: int
    """Where the next sound batch begins, or the end of the range to read."""
    data: memoryview
    """The bytes from `position` on that were read."""
    reason: str
    is_last: bool
    """Whether nothing sound follows: then it may be a tail that a crash tore."""


def read_chunks(file: File, position: int, end: int) -> Iterator[Chunk | Unsound]:
    """Read [position, end), which begins at a batch.

    Raises:
        DiskError: the file cannot be read.
    """
    want = CHUNK_BYTES
    while position < end:
        data = memoryview(file.read_at(position, min(want, end - position)))
        if len(data) < min(want, end - position):
            end = position + len(data)  # Another process cut the file meanwhile.
        scan = scan_batches(data)
        if scan.batches:
            yield Chunk(position, data, scan.batches)
        if scan.stop is StopReason.END:
            position += len(data)
            continue
        at = position + scan.end_position
        rest = data[scan.end_position :]
        claimed = claimed_bytes(rest)
        if (
            scan.stop is StopReason.TRUNCATED
            and position + len(data) < end
            and claimed <= min(end - at, BATCH_BYTES_MAX)
        ):
            want, position = max(CHUNK_BYTES, claimed), at
            continue
        # The scan's positions are relative to the chunk; the operator needs those in the file.
        reason = scan.detail.replace(f"position {scan.end_position}", f"position {at}", 1)
        following = _following(file, at, at + claimed, end, scan.stop)
        yield Unsound(at, following or end, rest, reason, is_last=following is None)
        if following is None:
            return
        want, position = CHUNK_BYTES, following


def _following(file: File, at: int, claimed_end: int, end: int, stop: StopReason) -> int | None:
    """Returns where a sound batch begins after an unsound one; None if there is none."""
    if stop not in (StopReason.BAD_CRC, StopReason.BAD_HEADER) or claimed_end >= end:
        return None
    data = file.read_at(claimed_end, min(CHUNK_BYTES, end - claimed_end))
    scan = scan_batches(data)
    # A batch that is larger than this read counts as sound until the caller reads it whole.
    is_large = scan.stop is StopReason.TRUNCATED and claimed_end + len(data) < end
    return claimed_end if scan.batches or is_large else None
