"""The checks that must pass before a group of cleaned segments may replace its sources.

    the map      its slots hold what was put into it; every offset that it holds in a window occurs as
                 an entry of a sidecar; no entry has a key that the map should have and lacks
    the history  each record that was counted for its key was met once; the last record of each cell
                 occurs as an entry
    the account  the records read are those kept plus those dropped, by verdict; those dropped as
                 superseded are those that were marked
    the hold     no tombstone or marker was dropped at or above the plan's hold
    the output   read again from the synced files: its digest, batches and offsets are those that the
                 filter computed from the source, and each manifest row matches its file
    the keys     if the output's sidecar says that its keys were checked: read again, its entries have
                 the keys, offsets, tombstones and versions that were compared with records

The filter also hashes every key again when its batch is recopied and compares it with the sidecar's
entry; not those of compressed batches in which nothing changes and whose sidecar says that their keys
were checked: these are copied without being inflated. Its account comes from the records that it read
and judged; the output is read by `cleaner/kernel/verify_output.pyx`, which shares no code with the
filter. So a wrong map, a lost or changed record, or a bit that flipped on the way to the file is
detected. Cost: a hash of each recopied record, and one more read of the output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from cleaner.kernel.kernel import History, OffsetMap
from cleaner.kernel.verify_output import OutputReader, sum_keys
from cleaner.pacing.meter import PassMeter
from cleaner.pacing.settings import CleanerSettings
from cleaner.passes.scan import ReadableSegment, scan_segment
from cleaner.rules.record_verdict import Verdict
from cleaner.rules.step import (
    GroupAccount,
    MapTally,
    MarkStep,
    OutputFound,
    ReadStep,
    SegmentSummary,
)
from cleaner.rules.text import count_text
from protocol.wire.errors import CorruptBatch, DecompressionTooLarge
from protocol.wire.numbers import OFFSET_MAX, Offset
from storage.files.errors import DamagedSidecar, MissingFile
from storage.formats.key_sidecar import CHECKSUM_BYTES
from storage.formats.manifest import UNKNOWN, SegmentRow
from storage.segment.cleaned_segment import CleanedSegment


class VerificationFailed(Exception):
    """The output differs from what must remain, or the offset map from what was put into it.

    The group was not swapped in. The message is one sentence that says what differs.
    """


class PassVerifier:
    """Verifies the steps of one pass, if enabled in the settings. Used by the pass's thread only."""

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
        """Compare a part of the map with what was put into it and with the entries of a window.

        Raises:
            VerificationFailed: they differ.
        """
        if self._settings.verify:
            started = self._monotonic()
            check_part(offset_map, window, steps)
            self.seconds += self._monotonic() - started

    def check_history(
        self,
        offset_map: OffsetMap,
        history: History,
        window: Sequence[SegmentRow],
        steps: Sequence[MarkStep],
        *,
        is_last: bool,
    ) -> None:
        """Compare the counts and cells of a part with the entries of a window.

        Args:
            is_last: whether no records of the section come after the window.

        Raises:
            VerificationFailed: they differ.
        """
        if self._settings.verify:
            started = self._monotonic()
            check_history(offset_map, history, window, steps, is_last=is_last)
            self.seconds += self._monotonic() - started

    def check_group(
        self,
        account: GroupAccount,
        sources: Sequence[SegmentRow],
        cleaned: Sequence[CleanedSegment],
        *,
        marked: int,
        hold_offset: int = OFFSET_MAX,
        key_sums: Mapping[Offset, int] | None = None,
    ) -> None:
        """Compare a group's finished, synced output with the filter's account of it.

        Args:
            marked: number of its records that were marked as superseded.
            hold_offset: the plan's hold.
            key_sums: the sums of the keys of outputs whose sidecars say that they were checked, by base
                offset.

        Raises:
            VerificationFailed: they differ, or the output is damaged.
            CleaningAborted, StorageError: as `scan_segment`.
        """
        if self._settings.verify:
            started = self._monotonic()
            check_account(account, sources, marked)
            check_hold(account, sources, hold_offset)
            check_output(account, cleaned, settings=self._settings, meter=self._meter)
            for segment in cleaned:
                if key_sums and segment.row.base_offset in key_sums:
                    expected = key_sums[segment.row.base_offset]
                    check_keys(segment, expected, meter=self._meter)
            self.seconds += self._monotonic() - started


def check_part(
    offset_map: OffsetMap, window: Sequence[SegmentRow], steps: Sequence[MarkStep]
) -> None:
    """Check that the map holds what was put into it, and that a window's entries match it.

    Args:
        steps: the result of marking each block of the window.

    Raises:
        VerificationFailed: an entry was lost or changed.
    """
    name = offsets_text(window)
    tallies = offset_map.tally_slots([window[0].base_offset, window[-1].end_offset])
    held, put = _sum(tallies), offset_map.tally
    _expect(held == put, f"the offset map holds {held}, but {put} were put into it")
    unknown = sum(step.unknown for step in steps)
    _expect(
        unknown == 0,
        f"{name}: {count_text(unknown, 'record')} later than the offset map's entry for the key",
    )
    met = _sum(step.met for step in steps)
    _expect(
        met == tallies[1],
        f"{name}: the offset map holds {tallies[1]}, but {met} were found as records",
    )


def check_history(
    offset_map: OffsetMap,
    history: History,
    window: Sequence[SegmentRow],
    steps: Sequence[MarkStep],
    *,
    is_last: bool,
) -> None:
    """Check that each record that was counted was met once, and the last one of each cell.

    Raises:
        VerificationFailed: one was missed.
    """
    name = offsets_text(window)
    left = offset_map.left if is_last else 0
    _expect(left == 0, f"{name}: {count_text(left, 'record')} counted and not found")
    if history.cells is None:
        return
    tallies = history.cells.tally_slots([window[0].base_offset, window[-1].end_offset])
    held, put = _sum(tallies), history.cells.tally
    _expect(held == put, f"the map of cells holds {held}, but {put} were put into it")
    met = _sum(step.met_cells for step in steps)
    _expect(
        met == tallies[1],
        f"{name}: the map of cells holds {tallies[1]}, but {met} were found as records",
    )


def _sum(tallies: Iterable[MapTally]) -> MapTally:
    each = tuple(tallies)
    return MapTally(
        count=sum(tally.count for tally in each),
        offset_sum=sum(tally.offset_sum for tally in each) % 2**64,
    )


def check_account(account: GroupAccount, sources: Sequence[SegmentRow], marked: int) -> None:
    """Check that each record read of a group is counted exactly once. Pure.

    Raises:
        VerificationFailed: a record or a mark is missing or counted twice.
    """
    name = offsets_text(sources)
    judged = sum(account.records_by_verdict.values())
    _expect(
        judged == account.records_read,
        f"{name}: {count_text(account.records_read, 'record')} read, but {judged} kept or dropped",
    )
    by_verdict = account.records_by_verdict
    dropped = by_verdict.get(Verdict.DROPPED_SUPERSEDED, 0)
    # The last record below the pass's end stays even if it is superseded.
    kept = account.marked - dropped
    _expect(
        account.marked == marked and 0 <= kept <= by_verdict.get(Verdict.KEPT_TAIL, 0),
        f"{name}: {count_text(marked, 'record')} found superseded, {account.marked} marked,"
        f" {dropped} dropped as such",
    )


def check_hold(account: GroupAccount, sources: Sequence[SegmentRow], hold_offset: int) -> None:
    """Check that no tombstone or marker was dropped that a group holds. Pure.

    Raises:
        VerificationFailed: one was.
    """
    expired = account.expired_offset_max
    _expect(
        expired < hold_offset,
        f"{offsets_text(sources)}: the tombstone or marker at offset {expired} was dropped, but they are"
        f" held from offset {hold_offset} on",
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


def check_keys(segment: CleanedSegment, expected: int, *, meter: PassMeter) -> None:
    """Read the key sidecar of an output again and compare its keys with those that were compared with
    records, in this pass or in one before.

    Raises:
        VerificationFailed: they differ, or it is damaged.
        CleaningAborted, StorageError: as `scan_segment`.
    """
    total = 0
    try:
        for block in segment.key_sidecar().blocks():
            meter.read(len(block.data))
            total += sum_keys(
                block.data[block.entries_at : block.versions_at],
                block.data[block.versions_at : -CHECKSUM_BYTES],
                base_offset=segment.row.base_offset,
            )
    except MissingFile:
        return  # Nothing claims that its keys were checked.
    except DamagedSidecar as error:
        raise VerificationFailed(f"{_name(segment.row)}: {error}") from error
    _expect(
        total % 2**64 == expected,
        f"{_name(segment.row)}: the sum of its keys must be {expected:016x}, that of its key sidecar is"
        f" {total % 2**64:016x}",
    )


def check_row(row: SegmentRow, found: SegmentSummary) -> None:
    """Check that a manifest row matches its file, except for tombstones and their horizon. Pure.

    Raises:
        VerificationFailed: it does not match.
    """
    for what, said, held in (
        ("bytes", row.size, found.size_bytes),
        ("records", row.record_count, found.records),
        ("records in control batches", row.control_count, found.controls),
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
    """Check that the rows have the tombstones and horizons of the copied and the rebuilt batches."""
    name = offsets_text(rows)
    tombstones = account.copied_tombstones + sum(each.tombstones for each in found)
    counted = [row.tombstone_count for row in rows]
    _expect(
        UNKNOWN in counted or sum(counted) == tombstones,
        f"{name}: {count_text(tombstones, 'tombstone')} must remain, the rows say {counted}",
    )
    sizes = [row.tombstone_bytes for row in rows]
    size = account.copied_tombstone_bytes + sum(each.tombstone_bytes for each in found)
    _expect(
        UNKNOWN in sizes or sum(sizes) == size,
        f"{name}: tombstones of size {size} must remain, the rows say {sizes}",
    )
    horizons = [account.copied_horizon_ms_min, *(each.delete_horizon_ms_min for each in found)]
    least, said = _least(horizons), _least(row.least_delete_horizon_ms for row in rows)
    _expect(least == said, f"{name}: the least delete horizon is {least}, the rows say {said}")
    latest = max(each.tombstone_horizon_ms_max for each in found)
    latest = max(latest, account.copied_tombstone_horizon_ms_max)
    said = max(row.tombstones_due_ms for row in rows)
    _expect(
        latest == said, f"{name}: the last tombstone falls due at {latest}, the rows say {said}"
    )


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
        ("rebuilt records", account.rebuilt_records, found.rebuilt_records),
        ("as the sum of their offsets", account.rebuilt_offset_sum, found.rebuilt_offset_sum),
    ):
        _expect(expected == held, f"{name}: {expected} {what} must remain, {held} are there")
    _expect(
        account.digest == found.digest,
        f"{name}: the digest of what must remain is {account.digest:032x},"
        f" that of the output {found.digest:032x}",
    )


def offsets_text(rows: Sequence[SegmentRow]) -> str:
    """Returns the offsets that neighbouring segments cover, for messages. Pure."""
    return f"offsets [{rows[0].base_offset}, {rows[-1].end_offset})"


def _name(row: SegmentRow) -> str:
    return f"cleaned segment {row.base_offset:020}.v{row.file_version}"


def _expect(holds: bool, difference: str) -> None:
    if not holds:
        raise VerificationFailed(difference)
