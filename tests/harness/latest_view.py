"""Reads the last values of a test's log from an offset on, as the broker does for a view."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial

from cleaner.lookup.key_table import KeyTable
from cleaner.lookup.latest_batches import LatestBatches, latest_batches
from protocol.records.record import Record
from protocol.wire.numbers import Offset
from storage.log.log import PartitionLog
from tests.harness.compacted_log import CompactedLog
from tests.harness.key_lookup import LookedUp
from tests.harness.log_builder import headers_in, records_in


class Follower:
    """A reader that keeps the last value of each key, and continues where it stopped.

    It begins from the start again if it has not been at the end of the view for as long as tombstones
    stay, or if records below its position are gone.
    """

    def __init__(self) -> None:
        self._reader = ViewReader()
        self._basis: object = None
        self._at_end_ms = 0
        self.position = 0
        self.last: dict[bytes, Record] = {}
        self.resumed = 0
        """Reads that began above the start."""

    def read_on(self, log: CompactedLog, *, bytes_max: int) -> bool:
        """Read once. Returns whether it is at the end of the view, so that it has all last values."""
        its_log = log.log
        basis = its_log.log_start_offset, its_log.rewrites, its_log.config.strategy
        has_missed_tombstones = log.now_ms - self._at_end_ms >= its_log.config.delete_retention_ms
        if basis != self._basis or has_missed_tombstones:
            self._basis, self.position, self.last = basis, its_log.log_start_offset, {}
            self._at_end_ms = log.now_ms
        self.resumed += self.position > its_log.log_start_offset
        if self.position < its_log.last_stable_offset:
            found = self._reader.read(its_log, self.position, bytes_max=bytes_max)
            for each in records_in(bytes_of(found)):
                if each.offset >= self.position and each.key is not None:
                    self.last[each.key] = each
            self.position = found.end_offset
        is_at_end = self.position == its_log.last_stable_offset
        if is_at_end:
            self._at_end_ms = log.now_ms
        return is_at_end

    def values(self) -> dict[bytes, bytes]:
        """Returns the last values of the keys that have one."""
        return values_of(self.last)


def values_of(last: Mapping[bytes, Record]) -> dict[bytes, bytes]:
    """Returns the values of the keys whose last record is no tombstone."""
    return {key: each.value for key, each in last.items() if each.value is not None}


def stored(log: PartitionLog, offset: Offset, end: Offset) -> list[Record]:
    """Returns the records from an offset to an end, as they are stored."""
    if end <= offset:
        return []
    region = log.reader.region_below(
        offset, end, max_bytes=1 << 30, whole_first_batch=True, cached_only=False
    )
    if region is None:
        return []
    data = region.read_bytes()
    region.release()
    assert not any(each.is_transactional or each.is_control for each in headers_in(data))
    return [each for each in records_in(data) if each.offset >= offset]


def records_from(found: LatestBatches, offset: int, end_offset: int) -> list[Record]:
    """Returns the records of [offset, end offset) that a read got."""
    return [each for each in records_in(bytes_of(found)) if offset <= each.offset < end_offset]


def bytes_of(found: LatestBatches) -> bytes:
    """Returns the batches that a read got, one after the other."""
    return b"".join(found.records)


async def notes_followed() -> None:
    """Wait until no table of a broker renews its notes."""
    while renewals := [each for each in asyncio.all_tasks() if "notes" in each.get_name()]:
        await asyncio.wait(renewals)


class ViewReader:
    """A reader of views, with a table of keys that lasts."""

    def __init__(self, *, spills: bool = False) -> None:
        """
        Args:
            spills: see `LookedUp`.
        """
        self.looked_up = LookedUp(spills=spills)
        self.stored_records = 0
        """The records that could have been sent as they are stored."""

    def read(
        self,
        log: PartitionLog,
        offset: int,
        *,
        bytes_max: int = 1 << 20,
        whole_first_batch: bool = True,
    ) -> LatestBatches:
        """Returns what one read gets, after a check of what could be sent as it is stored."""

        def work(table: KeyTable) -> tuple[LatestBatches, LatestBatches, list[Record]]:
            read = partial(
                latest_batches,
                log,
                Offset(offset),
                table,
                bytes_max=bytes_max,
                whole_first_batch=whole_first_batch,
                decompressed_bytes_max=1 << 30,
            )
            found, values = read(with_tombstones=True), read(with_tombstones=False)
            return found, values, stored(log, Offset(offset), table.live_until(Offset(offset)))

        found, values, as_stored = self.looked_up.use(log, work)
        read = records_from(found, offset, found.end_offset)
        both_end = min(found.end_offset, values.end_offset)
        assert records_from(values, offset, both_end) == [
            each for each in read if each.value is not None and each.offset < both_end
        ]
        end = min(found.end_offset, as_stored[-1].offset + 1 if as_stored else 0)
        assert [each for each in read if each.offset < end] == [
            each for each in as_stored if each.offset < end
        ]
        self.stored_records += len(as_stored)
        headers = headers_in(bytes_of(found))
        assert found.size == len(bytes_of(found))
        assert not any(each.is_transactional or each.is_control for each in headers)
        assert all(each.record_count for each in headers)
        return found

    def records(self, log: PartitionLog, offset: int, *, bytes_max: int = 1 << 20) -> list[Record]:
        """Returns the records from an offset to the end of the view, as a client gets them."""
        read: list[Record] = []
        while offset < log.last_stable_offset:
            found = self.read(log, offset, bytes_max=bytes_max)
            assert offset < found.end_offset <= log.last_stable_offset, "no progress"
            read += [each for each in records_in(bytes_of(found)) if each.offset >= offset]
            offset = found.end_offset
        return read
