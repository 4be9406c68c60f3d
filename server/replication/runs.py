"""Checks the batches of a fetched run before they are appended. Pure.

A source sends whole batches, of which the last may be cut off by the bound on its answer, and the first
may begin below the offset that was asked for (a batch is sent whole). Offsets grow; gaps are legal,
because the source may be compacted; epochs never fall.
"""

from __future__ import annotations

from collections.abc import Iterator

from protocol.records.batch_header import HEADER_BYTES, BatchHeader, is_intact, read_header
from protocol.wire.errors import CorruptBatch
from protocol.wire.numbers import Epoch, Offset


def whole_batches(
    records: memoryview, *, end: Offset, last_epoch: Epoch
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yields each batch from `end` on, checked.

    Raises:
        CorruptBatch, UnsupportedMagic: a batch is not what the source wrote, or does not continue the
        log. The
            batches before it are good.
    """
    position = 0
    while len(records) - position >= HEADER_BYTES:
        header = read_header(records, position)
        batch = records[position : position + header.size_bytes]
        if len(batch) < header.size_bytes:
            return
        position += header.size_bytes
        if header.last_offset < end:
            continue
        if not is_intact(batch):
            raise CorruptBatch(f"the batch at offset {header.base_offset} has a wrong CRC")
        if header.base_offset < end or header.leader_epoch < last_epoch:
            raise CorruptBatch(
                f"the batch at offset {header.base_offset} in epoch {header.leader_epoch} does not"
                f" continue the log up to {end} in epoch {last_epoch}"
            )
        yield header, batch
        end, last_epoch = Offset(header.last_offset + 1), Epoch(header.leader_epoch)


def first_gap(records: memoryview, *, end: Offset) -> Offset | None:
    """Returns the first offset from `end` on that the whole batches here skip; None if they skip
    none."""
    position = 0
    while len(records) - position >= HEADER_BYTES:
        header = read_header(records, position)
        position += header.size_bytes
        if position > len(records):
            return None
        if header.base_offset > end:
            return end
        if header.last_offset >= end and header.record_count < header.last_offset - end + 1:
            return end
        end = max(end, Offset(header.last_offset + 1))
    return None
