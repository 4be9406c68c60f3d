"""Read the batches of a segment file in chunks, past those that are not sound.

Recovery (`storage/scan.py`) ends at the first unsound batch, because there a log ends. Who looks at a
file to find out what is wrong with it goes on behind that batch, as long as its own length leads to
a place where something sound begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from protocol.batch_scan import ScannedBatch, StopReason, scan_batches
from storage.batch_walk import claimed_bytes
from storage.files import File

CHUNK_BYTES = 4 << 20
BATCH_BYTES_MAX = 1 << 28
"""A length beyond this is not believed, so that a flipped bit costs no memory."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some whole, sound batches of a file."""

    position: int
    """Where `data` begins in the file; the batches' positions count from there."""
    data: memoryview
    batches: list[ScannedBatch]


@dataclass(frozen=True, slots=True)
class Unsound:
    """Bytes that are no sound batch."""

    position: int
    end_position: int
    """Where the next sound batch begins, or the end of what was to be read."""
    data: memoryview
    """The bytes from `position` on, as far as they were read."""
    reason: str
    is_last: bool
    """Whether nothing sound follows: it may be a tail that a crash tore."""


def read_chunks(file: File, position: int, end: int) -> Iterator[Chunk | Unsound]:
    """Read [position, end), which begins at a batch.

    Raises:
        DiskError: the file cannot be read.
    """
    want = CHUNK_BYTES
    while position < end:
        data = memoryview(file.read_at(position, min(want, end - position)))
        if len(data) < min(want, end - position):
            end = position + len(data)  # Somebody cut the file meanwhile.
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
        # The scan counts positions in the chunk, an operator in the file.
        reason = scan.detail.replace(f"position {scan.end_position}", f"position {at}", 1)
        following = _following(file, at, at + claimed, end, scan.stop)
        yield Unsound(at, following or end, rest, reason, is_last=following is None)
        if following is None:
            return
        want, position = CHUNK_BYTES, following


def _following(file: File, at: int, claimed_end: int, end: int, stop: StopReason) -> int | None:
    """Where a sound batch begins behind an unsound one; None if it is the last."""
    if stop not in (StopReason.BAD_CRC, StopReason.BAD_HEADER) or claimed_end >= end:
        return None
    data = file.read_at(claimed_end, min(CHUNK_BYTES, end - claimed_end))
    scan = scan_batches(data)
    # A batch that is larger than what was read here counts as sound until it is read whole.
    is_large = scan.stop is StopReason.TRUNCATED and claimed_end + len(data) < end
    return claimed_end if scan.batches or is_large else None
