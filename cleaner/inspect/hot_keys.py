"""Read the keys of hot keys from the log: sidecars have only their hashes.

The last record of each key is looked up by its offset, so one batch is read for each.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from cleaner.kernel.kernel import siphash128
from cleaner.keys.counts import HotKey
from cleaner.pacing.meter import PassMeter
from cleaner.passes.index import IndexedSegment
from cleaner.passes.scan import read_exactly
from protocol.records.record_columns import RecordColumns
from protocol.wire.errors import CorruptBatch, DecompressionTooLarge
from protocol.wire.numbers import Offset
from storage.files.errors import CorruptLog, DamagedSidecar
from storage.files.paths import KEYS
from storage.segment.lookup import batch_at

KEY_BYTES_SHOWN_MAX = 256
"""Longer keys are cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedHotKey:
    """A hot key with its name."""

    counts: HotKey
    key: bytes | None
    """Its first bytes, at most `KEY_BYTES_SHOWN_MAX`; None if its last record cannot be read."""
    key_bytes: int | None
    """The size of the whole key."""


def named_hot_keys(
    hottest: Sequence[HotKey],
    segments: Sequence[IndexedSegment],
    *,
    hash_key: bytes,
    decompressed_bytes_max: int,
    meter: PassMeter,
) -> tuple[NamedHotKey, ...]:
    """Returns the keys with their names.

    Args:
        segments: those that were counted, in offset order.

    Raises:
        DamagedSidecar: a record has another key than its sidecar says; the sidecar was removed.
        SegmentRemoved, CleaningAborted, DiskError: the log cannot be read.
    """
    bases = [segment.row.base_offset for segment in segments]
    named = []
    for each in hottest:
        segment = segments[bisect_right(bases, each.last_offset) - 1]
        try:
            key = _key_at(segment, Offset(each.last_offset), decompressed_bytes_max, meter)
        except (CorruptBatch, DecompressionTooLarge, CorruptLog):
            named.append(NamedHotKey(counts=each, key=None, key_bytes=None))
            continue
        if key is None or siphash128(hash_key, key) != each.key_hash:
            segment.segment.drop_key_sidecar()
            path = segment.segment.segment.path(KEYS)
            raise DamagedSidecar(path, f"the record at offset {each.last_offset} has another key")
        named.append(NamedHotKey(counts=each, key=shown(key), key_bytes=len(key)))
    return tuple(named)


def shown(key: bytes) -> bytes:
    """Returns the part of a key that is shown; a cut does not divide a character of UTF-8. Pure."""
    if len(key) > KEY_BYTES_SHOWN_MAX:
        for size in range(KEY_BYTES_SHOWN_MAX, KEY_BYTES_SHOWN_MAX - 4, -1):
            with suppress(UnicodeDecodeError):
                key[:size].decode()
                return key[:size]
    return key[:KEY_BYTES_SHOWN_MAX]


def _key_at(
    segment: IndexedSegment, offset: Offset, decompressed_bytes_max: int, meter: PassMeter
) -> bytes | None:
    """Returns the key of the record at an offset; None if there is no such record."""
    with segment.segment.segment.reading(cached_only=False) as reads:
        place = batch_at(segment.segment.segment, offset, segment.row.size, reads)
    if place is None:
        return None
    batch = read_exactly(segment, place.position, place.size)
    meter.read(place.size)
    columns = RecordColumns(
        first_offset=offset,
        end_offset=offset + 1,
        with_value=False,
        decompressed_bytes_max=decompressed_bytes_max,
    )
    columns.feed(batch, position=place.position)
    taken = columns.take()
    if len(taken) != 1 or taken.key is None or taken.key.null_count:
        return None
    return bytes(memoryview(taken.key.data))
