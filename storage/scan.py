"""Read a segment file from a position on, check every batch, and stop at the first that is not sound.

A scan says where the sound part ends and why; whether the rest is a torn tail or corruption is
recovery's to decide. A read error is neither: it is raised, never taken for the end of the data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from protocol.batch_scan import ScannedBatch, StopReason, scan_batches
from storage.files import File

CHUNK_BYTES = 4 << 20
HEADER_BYTES = 61


@dataclass(frozen=True, slots=True)
class ScanEnd:
    """Where the sound batches of a file end."""

    position: int
    reason: str
    """Empty if the file ends there too, else what is wrong with what follows."""


def scan_file(
    file: File, position: int, size: int, take: Callable[[ScannedBatch, int], str | None]
) -> ScanEnd:
    """Give every sound batch of [position, size) to `take`, with its position in the file.

    Args:
        take: returns why the batch cannot stand there (offsets that go back), or None.

    Raises:
        DiskError: the file cannot be read.
    """
    want = CHUNK_BYTES
    while position < size:
        chunk = file.read_at(position, min(want, size - position))
        scan = scan_batches(chunk, 0, len(chunk))
        for batch in scan.batches:
            refused = take(batch, position + batch.position)
            if refused is not None:
                return ScanEnd(position + batch.position, refused)
        chunk_end = position + len(chunk)
        position += scan.end_position
        if scan.stop is StopReason.END:
            continue
        claimed = _claimed_size(chunk, scan.end_position)
        if scan.stop is not StopReason.TRUNCATED or chunk_end == size or position + claimed > size:
            return ScanEnd(position, scan.detail or scan.stop.name)
        want = max(CHUNK_BYTES, claimed)
    return ScanEnd(position, "")


def _claimed_size(chunk: bytes, at: int) -> int:
    """The size of the batch at `at` by its own length field; of a header if even that is cut off."""
    if at + 12 > len(chunk):
        return HEADER_BYTES
    return int.from_bytes(chunk[at + 8 : at + 12], "big", signed=True) + 12
