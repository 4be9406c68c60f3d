"""Finds the keys of the differences that a comparison lists: the table has only their hashes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cleaner.rules.log_comparison import Difference
from protocol.records.record_batch import read_records
from protocol.wire.numbers import Offset
from server.replication.verify.sides import Side
from server.runtime.executors import Executor


async def keys_of(
    differences: Iterable[Difference],
    sides: Sequence[Side],
    *,
    thread: Executor,
    decompressed_bytes_max: int,
) -> dict[int, bytes | None]:
    """Returns the keys of differences, by their smallest offset.

    A key is left out if its record was removed meanwhile, and None if the record has none.

    Args:
        thread: decodes the batches.

    Raises:
        CannotRead, ClientFailed, StorageError: a side cannot be read.
        ProtocolError: a batch is damaged.
    """
    found: dict[int, bytes | None] = {}
    for difference in differences:
        for side, offset in zip(sides, difference.offsets, strict=True):
            if offset is None or difference.first_offset in found:
                continue
            piece = await side.read(Offset(offset))
            if piece is None or not len(piece.records):
                continue
            records = await thread.run(
                read_records, piece.records, decompressed_bytes_max=decompressed_bytes_max
            )
            for record in records:
                if record.offset == offset:
                    found[difference.first_offset] = record.key
    return found
