"""The last records of some keys of a log: by its table, each read from the log and compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from cleaner.lookup.key_table import KeyTable, SpillPlace
from cleaner.lookup.record_at import record_at
from cleaner.lookup.table_view import TableView
from cleaner.pacing.meter import PassMeter
from cleaner.pacing.settings import CleanerSettings
from protocol.records.record import Record
from protocol.wire.numbers import Offset
from storage.files.errors import DamagedSidecar, SegmentRemoved
from storage.log.log import PartitionLog

READ_ATTEMPTS = 10
"""A pass may swap segments between a look at the list of segments and the read; it does so a few times
a second at most."""


class WrongTable(Exception):
    """A record that the table names has another key: a sidecar was wrong. Make the table without
    sidecars."""


class OutdatedTable(Exception):
    """A tombstone is gone that had the highest version of its key, so another record may be the last one
    now. Make the table again."""


class TooLarge(Exception):
    """The records take more memory than an answer may."""


@dataclass(slots=True)
class Room:
    """How much an answer may still take: keys, values and headers. For one thread at a time."""

    bytes_left: int
    is_empty: bool = True

    def take(self, record: Record) -> None:
        """Raises TooLarge, but not for the first record: a record of any size can be asked for alone."""
        headers = sum(len(name) + len(value or b"") for name, value in record.headers)
        self.bytes_left -= len(record.key or b"") + len(record.value or b"") + headers
        if self.bytes_left < 0 and not self.is_empty:
            raise TooLarge
        self.is_empty = False


def made_table(
    view: TableView,
    settings: CleanerSettings,
    meter: PassMeter,
    *,
    bytes_max: int,
    trusts_sidecars: bool = True,
    place: SpillPlace | None = None,
) -> KeyTable:
    """Returns a table of a whole log. If a sidecar is damaged, none is trusted. For a worker thread.

    Args:
        bytes_max, place: see `KeyTable`.

    Raises:
        As `KeyTable.extend`.
    """
    make = partial(KeyTable, view, settings, bytes_max=bytes_max, place=place)
    table = make(trusts_sidecars=trusts_sidecars)
    try:
        try:
            table.extend(view, meter)
        except DamagedSidecar:
            table.close()
            table = make(trusts_sidecars=False)
            table.extend(view, meter)
    except BaseException:
        table.close()
        raise
    return table


def last_records(
    log: PartitionLog,
    keys: Sequence[bytes],
    table: KeyTable,
    room: Room,
    *,
    decompressed_bytes_max: int,
    cached_bytes_max: int | None = None,
) -> tuple[Record | None, ...]:
    """Returns for each key its last record, which may be a tombstone; None if it is not in the log.

    An error leaves `room` as it was.

    Args:
        cached_bytes_max: see `record_at`; without it, for a worker thread.

    Raises:
        TooLarge, WrongTable, OutdatedTable, SpillDamaged: see there.
        CorruptBatch, DecompressionTooLarge, CorruptLog: the log is damaged.
        NotCached, SegmentRemoved, DiskError: as `record_at`.
    """
    left = Room(room.bytes_left, room.is_empty)  # `replace` takes four times as long.
    read = partial(
        _read,
        log,
        decompressed_bytes_max=decompressed_bytes_max,
        cached_bytes_max=cached_bytes_max,
    )
    cached_only = cached_bytes_max is not None
    records = tuple(
        _last_record(log, key, table.offset_of(key, cached_only=cached_only), table, left, read)
        for key in keys
    )
    room.bytes_left, room.is_empty = left.bytes_left, left.is_empty
    return records


def _last_record(
    log: PartitionLog,
    key: bytes,
    offset: Offset | None,
    table: KeyTable,
    room: Room,
    read: Callable[[Offset], Record | None],
) -> Record | None:
    if offset is None or offset < log.log_start_offset:
        return None
    record = read(offset)
    if record is None:
        # A pass has dropped the tombstone. A record with a lower version that came since may win now.
        if table.basis.strategy.has_versions:
            raise OutdatedTable
        return None
    if record.key != key:
        raise WrongTable
    room.take(record)
    return record


def _read(
    log: PartitionLog,
    offset: Offset,
    *,
    decompressed_bytes_max: int,
    cached_bytes_max: int | None,
) -> Record | None:
    for attempt in range(READ_ATTEMPTS):
        try:
            return record_at(
                log.segments,
                offset,
                decompressed_bytes_max=decompressed_bytes_max,
                cached_bytes_max=cached_bytes_max,
            )
        except SegmentRemoved:
            if attempt + 1 == READ_ATTEMPTS:
                raise
    raise AssertionError("the last attempt returns or raises")
