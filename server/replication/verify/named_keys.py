"""Finds the keys of the differences that a comparison lists: the table has only their hashes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

from cleaner.rules.log_comparison import Difference
from protocol.records.record_batch import read_records
from protocol.wire.errors import ProtocolError
from protocol.wire.numbers import Offset
from server.client.errors import ClientFailed
from server.replication.verify.sides import CannotRead, Side
from server.runtime.executors import Executor
from storage.files.errors import StorageError
from storage.files.files import Buffer


async def keys_of(
    differences: Iterable[Difference],
    sides: Sequence[Side],
    *,
    thread: Executor,
    decompressed_bytes_max: int,
) -> dict[int, bytes | None]:
    """Returns the keys of differences, by their smallest offset.

    A key is left out if its record was removed meanwhile or cannot be read: the verdict counts more than
    its name. It is None if the record has none.

    Args:
        thread: decodes the batches, and searches and frees their records, which may be very many.
    """
    found: dict[int, bytes | None] = {}
    for difference in differences:
        for side, offset in zip(sides, difference.offsets, strict=True):
            if offset is None or difference.first_offset in found:
                continue
            with suppress(CannotRead, ClientFailed, StorageError, ProtocolError):
                piece = await side.read(Offset(offset))
                if piece is not None and len(piece.records):
                    keys = await thread.run(_keys_at, piece.records, offset, decompressed_bytes_max)
                    found.update((difference.first_offset, key) for key in keys)
    return found


def _keys_at(records: Buffer, offset: int, decompressed_bytes_max: int) -> list[bytes | None]:
    """Returns the key of the record at an offset; nothing if there is no such record."""
    each = read_records(records, decompressed_bytes_max=decompressed_bytes_max)
    return [record.key for record in each if record.offset == offset]
