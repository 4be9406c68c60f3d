"""What must hold before a group of cleaned segments may take the place of its sources.

    the map      its slots hold what was put into it; every offset that it holds in a window was met
                 as an entry of a sidecar; no entry has a key that the map should know and does not
    the account  the records read are those kept and those dropped, by reason; those dropped as
                 superseded are those that were marked
    the output   read again from the synced files: its digest, its batches and its offsets are those
                 that the filter told from the source, and each manifest row says what its file holds

Every key is hashed again when its batch is recopied, and must be its sidecar's entry: that is the
filter's part. Its account comes from what it read and judged, the rest from `cleaner/verify_output.pyx`,
which shares none of its code: a wrong map, a lost or changed record, a bit that flipped on the way to
the file cannot pass. Cost: a hash of each record that is recopied, and one more read of the output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from cleaner.kernel import OffsetMap
from cleaner.meter import PassMeter
from cleaner.retain import Verdict
from cleaner.scan import ReadableSegment, scan_segment
from cleaner.settings import CleanerSettings
from cleaner.step import (
    GroupAccount,
    MapTally,
    MarkStep,
    OutputFound,
    ReadStep,
    SegmentSummary,
)
from cleaner.text import count_text
from cleaner.verify_output import OutputReader
from protocol.errors import CorruptBatch, DecompressionTooLarge
from storage.manifest import UNKNOWN, SegmentRow


class VerificationFailed(Exception):
    """What was written is not what must remain, or the offset map is not what was mapped.

    Nothing of the group was swapped in. The message is one sentence that says what differed.
    """


class PassVerifier:
    """Verifies the steps of one pass, if the settings say so; used by the pass's one thread."""

    __slots__ = ("_meter", "_monotonic", "_settings", "seconds")

    def __init__(
        self, settings: CleanerSettings, *, meter: PassMeter, monotonic: Callable[[], float]
    ) -> None:
        # Constant after construction.
        self._settings = settings
        self._meter = meter
        self._monotonic = monotonic
        # State.
        self.seconds = 0.0
        """Wall time so far; time spent throttled is part of it."""

    def check_part(
        self, offset_map: OffsetMap, window: Sequence[SegmentRow], steps: Sequence[MarkStep]
    ) -> None:
        """Compare a part of the map with what was put into it and met in a window of segments.

        Raises:
            VerificationFailed: they differ.
        """
        if self._settings.verify:
            started = self._monotonic()
            check_part(offset_map, window, steps)
            self.seconds += self._monotonic() - started

    def check_group(
        self,
        account: GroupAccount,
        sources: Sequence[SegmentRow],
        cleaned: Sequence[ReadableSegment],
        *,
        marked: int,
    ) -> None:
        """Compare a group's finished, synced output with the filter's account of it.

        Args:
            marked: how many of its records were found superseded.

        Raises:
            VerificationFailed: they differ, or the output is damaged.
            CleaningAborted, StorageError: as `scan_segment`.
        """
        if self._settings.verify:
            started = self._monotonic()
            check_account(account, sources, marked)
            check_output(account, cleaned, settings=self._settings, meter=self._meter)
            self.seconds += self._monotonic() - started


def check_part(
    offset_map: OffsetMap, window: Sequence[SegmentRow], steps: Sequence[MarkStep]
) -> None:
    """Whether the map holds what was put into it, and a window's entries are what it says of them.

    Args:
        steps: how each block of the window was marked.

    Raises:
        VerificationFailed: an entry was lost or changed.
    """
    name = offsets_text(window)
    tallies = offset_map.tally_slots([window[0].base_offset, window[-1].end_offset])
    held, put = _sum(tallies), offset_map.tally
    _expect(held == put, f"the offset map holds {held}, but got {put}")
    unknown = sum(step.unknown for step in steps)
    _expect(
        unknown == 0,
        f"{name}: {count_text(unknown, 'record')} later than the offset map says of the key",
    )
    met = _sum(step.met for step in steps)
    _expect(
        met == tallies[1],
        f"{name}: the offset map holds {tallies[1]}, but {met} were met as records",
    )


def _sum(tallies: Iterable[MapTally]) -> MapTally:
    each = tuple(tallies)
    return MapTally(
        count=sum(tally.count for tally in each),
        offset_sum=sum(tally.offset_sum for tally in each) % 2**64,
    )


def check_account(account: GroupAccount, sources: Sequence[SegmentRow], marked: int) -> None:
    """Whether all that was read of a group is accounted for, once. Pure.

    Raises:
        VerificationFailed: a record or a mark is not.
    """
    name = offsets_text(sources)
    judged = sum(account.records_by_verdict.values())
    _expect(
        judged == account.records_read,
        f"{name}: {count_text(account.records_read, 'record')} read, but {judged} kept or dropped",
    )
    by_verdict = account.records_by_verdict
    dropped = by_verdict.get(Verdict.DROPPED_SUPERSEDED, 0)
    # The last record of a pass stays, whatever it is.
    kept = account.marked - dropped
    _expect(
        account.marked == marked and 0 <= kept <= by_verdict.get(Verdict.KEPT_TAIL, 0),
        f"{name}: {count_text(marked, 'record')} found superseded, {account.marked} marked,"
        f" {dropped} dropped as such",
    )


def check_output(
    account: GroupAccount,
    cleaned: Sequence[ReadableSegment],
    *,
    settings: CleanerSettings,
    meter: PassMeter,
) -> None:
    """Read a group's output again and compare it with its account and its manifest rows.

    Raises:
        VerificationFailed: they differ, or the output is damaged.
        CleaningAborted, StorageError: as `scan_segment`.
    """
    reader = OutputReader(
        rebuilt=account.rebuilt,
        batches=account.batches,
        decompressed_bytes_max=settings.decompressed_bytes_max,
    )

    def step(chunk: bytes, position: int) -> ReadStep:
        return reader.feed(chunk, position=position)

    summaries: list[SegmentSummary] = []
    for segment in cleaned:
        reader.start_segment(segment.row.base_offset)
        try:
            for _ in scan_segment(segment, step, chunk_bytes=settings.chunk_bytes, meter=meter):
                pass
        except (CorruptBatch, DecompressionTooLarge) as error:
            raise VerificationFailed(f"{_name(segment.row)}: {error}") from error
        summaries.append(reader.segment)
        check_row(segment.row, summaries[-1])
    rows = [segment.row for segment in cleaned]
    _check_copied(account, rows, summaries)
    _check_found(account, reader.found, rows)


def check_row(row: SegmentRow, found: SegmentSummary) -> None:
    """Whether a manifest row says what its file holds, but for tombstones and their horizon. Pure.

    Raises:
        VerificationFailed: it does not.
    """
    for what, said, held in (
        ("bytes", row.size, found.size_bytes),
        ("records", row.record_count, found.records),
        ("as the largest timestamp", row.max_timestamp, found.max_timestamp),
        ("as its offset", row.offset_of_max_timestamp, found.max_timestamp_offset),
    ):
        _expect(said == held, f"{_name(row)}: its row says {said} {what}, its file {held}")
    _expect(
        found.end_offset <= row.end_offset,
        f"{_name(row)}: its file ends at offset {found.end_offset}, its row at {row.end_offset}",
    )


def _check_copied(
    account: GroupAccount, rows: Sequence[SegmentRow], found: Sequence[SegmentSummary]
) -> None:
    """Whether the rows count the tombstones and horizons of what was copied and what was rebuilt."""
    name = offsets_text(rows)
    tombstones = account.copied_tombstones + sum(each.tombstones for each in found)
    counted = [row.tombstone_count for row in rows]
    _expect(
        UNKNOWN in counted or sum(counted) == tombstones,
        f"{name}: {count_text(tombstones, 'tombstone')} must remain, the rows say {counted}",
    )
    horizons = [account.copied_horizon_ms_min, *(each.delete_horizon_ms_min for each in found)]
    least, said = _least(horizons), _least(row.least_delete_horizon_ms for row in rows)
    _expect(least == said, f"{name}: the least delete horizon is {least}, the rows say {said}")


def _least(horizons: Iterable[int]) -> int:
    return min((horizon for horizon in horizons if horizon != UNKNOWN), default=UNKNOWN)


def _check_found(account: GroupAccount, found: OutputFound, rows: Sequence[SegmentRow]) -> None:
    name = offsets_text(rows)
    kept = sum(
        records for verdict, records in account.records_by_verdict.items() if verdict.is_kept
    )
    for what, expected, held in (
        ("batches", account.batches, found.batches),
        ("records", kept, sum(row.record_count for row in rows)),
        ("records written anew", account.rebuilt_records, found.rebuilt_records),
        ("as the sum of their offsets", account.rebuilt_offset_sum, found.rebuilt_offset_sum),
    ):
        _expect(expected == held, f"{name}: {expected} {what} must remain, {held} are there")
    _expect(
        account.digest == found.digest,
        f"{name}: the digest of what must remain is {account.digest:032x},"
        f" of what was written {found.digest:032x}",
    )


def offsets_text(rows: Sequence[SegmentRow]) -> str:
    """What neighbouring segments cover, for messages. Pure."""
    return f"offsets [{rows[0].base_offset}, {rows[-1].end_offset})"


def _name(row: SegmentRow) -> str:
    return f"cleaned segment {row.base_offset:020}.v{row.file_version}"


def _expect(holds: bool, difference: str) -> None:
    if not holds:
        raise VerificationFailed(difference)
