"""Reads a segment file from a position on, checks every batch, and stops at the first unsound one.

A scan reports where the sound part ends and why. Recovery decides whether the rest is a torn tail or
corruption. A read error is neither: it is raised and never taken for the end of the data.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.records.batch_scan import StopReason, scan_batches
from protocol.records.batch_tally import BatchTally
from storage.batches.walk import claimed_bytes
from storage.files.files import File

CHUNK_BYTES = 1 << 20
"""Small enough to stay in the processor's cache between the read and the checksum."""


@dataclass(frozen=True, slots=True)
class ScanEnd:
    """The end of a file's sound batches."""

    position: int
    reason: str
    """Empty if the file ends at `position`, else what is wrong with the bytes that follow."""


def scan_file(file: File, size: int, tally: BatchTally) -> ScanEnd:
    """Feed every sound batch between `tally.position` and `size` to `tally`.

    Raises:
        DiskError: the file cannot be read.
    """
    buffer = memoryview(bytearray(min(CHUNK_BYTES, max(size - tally.position, 0))))
    while tally.position < size:
        start, wanted = tally.position, min(len(buffer), size - tally.position)
        chunk = buffer[: file.read_into(start, buffer[:wanted])]
        stop = tally.feed(chunk)
        taken = tally.position - start
        if stop is StopReason.END and chunk:
            continue
        claimed = claimed_bytes(chunk[taken:])
        is_last = len(chunk) < wanted or start + wanted == size or tally.position + claimed > size
        if stop is not StopReason.TRUNCATED or is_last:
            return ScanEnd(tally.position, _reason(chunk[taken:], stop, tally))
        if claimed > len(buffer):
            buffer = memoryview(bytearray(claimed))
    return ScanEnd(tally.position, "")


def _reason(rest: memoryview, stop: StopReason, tally: BatchTally) -> str:
    if not rest:
        return "the file ends there"
    if stop is StopReason.OUT_OF_ORDER:
        base_offset = int.from_bytes(rest[:8], "big", signed=True)
        return f"offset {base_offset} cannot follow {tally.end_offset - 1}"
    return scan_batches(rest).detail
