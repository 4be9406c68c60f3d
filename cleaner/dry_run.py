"""What a pass would do, without doing it: the real pass over the real log, with a null sink.

    the view        the log as a roll would leave it: `now` rolls first, so the active segment counts as
                    sealed up to its end, and its bound is the high watermark as ever
    the log         takes swaps, and writes them down
    sidecars        that it has to make are scratch files, so that the pass makes them, too; those that
                    are damaged stay where they are, so that the pass meets them, too
    the segments    are written to `storage/null_files.py`, which only counts
    verification    is left out, for there is nothing to read again; its reading is added to the account

So what dies, by which verdict, how segments are grouped and what their manifest rows will say is what
the same code finds that would do it; only times are estimated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import count

from cleaner.clean import clean
from cleaner.cleaning_plan import CleaningPlan
from cleaner.meter import PassMeter
from cleaner.progress import Phase
from cleaner.rehearsed_segment import rehearsed_view, scratch_files
from cleaner.report import GroupReport, PassReport
from cleaner.settings import CleanerSettings
from cleaner.throttle import IoRates
from cleaner.unswapped_log import UnswappedLog
from storage.cleaned_segment import CleanedSegmentWriter
from storage.log import PartitionLog
from storage.manifest import UNKNOWN, SegmentRow
from storage.null_files import NullFileSystem

WRITTEN_BYTES_MIN = 16 << 20
"""A pass that writes less says little of how fast the disk is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """What a pass would do now."""

    report: PassReport
    """The pass's, with its groups; its times are estimates under the present throttle."""
    replaced: tuple[GroupReport, ...]
    """The groups that would be swapped."""
    untouched: tuple[SegmentRow, ...]
    """The segments that would stay as they are."""
    rolls: bool
    """Whether the active segment would roll first."""
    map_bytes: int
    """Memory of the offset map, at most."""


class DryMeter(PassMeter):
    """The account of a rehearsal: it pays for what it reads, and for the sidecars that it writes."""

    __slots__ = ()

    def wrote(self, bytes_count: int) -> None:
        if self.progress.phase is Phase.INDEX:
            super().wrote(bytes_count)
        else:
            self.bytes_written += bytes_count
            self.check()


def null_segments(log: PartitionLog) -> Callable[[int], CleanedSegmentWriter]:
    """Begins outputs of which only the sizes are kept."""
    fs, versions = NullFileSystem(), count(1)
    directory, hash_key = log.directory, log.identity.hash_key
    return lambda base_offset: CleanedSegmentWriter(
        fs, directory, base_offset, next(versions), hash_key
    )


def dry_run(
    log: PartitionLog,
    plan: CleaningPlan,
    settings: CleanerSettings,
    *,
    meter: DryMeter,
    monotonic: Callable[[], float],
    rates: IoRates,
    past: Sequence[PassReport] = (),
) -> DryRun:
    """Rehearse a plan of a view `as_if_rolled`, in the calling thread. Raises as `clean`.

    Args:
        rates: what holds passes at present; `math.inf` where nothing does.
        past: of earlier passes, by which its time is foretold.
    """
    dry_log = UnswappedLog(log, null_segments(log))
    with closing(scratch_files(log)) as scratch:
        report = clean(
            dry_log,
            replace(plan, view=rehearsed_view(plan.view, scratch)),
            replace(settings, verify=False),
            meter=meter,
            monotonic=monotonic,
        )
    predicted = predicted_report(report, past, is_verified=settings.verify, rates=rates)
    replaced = tuple(
        group for group in report.group_reports if group.sources[0].base_offset in dry_log.swapped
    )
    gone = {row for group in replaced for row in group.sources}
    return DryRun(
        report=predicted,
        replaced=replaced,
        untouched=tuple(row for row in plan.view.sealed_rows if row not in gone),
        rolls=plan.view.active_row.file_version == UNKNOWN,
        map_bytes=settings.map_bytes,
    )


def predicted_report(
    rehearsed: PassReport, past: Iterable[PassReport], *, is_verified: bool, rates: IoRates
) -> PassReport:
    """The report of the pass itself, from that of its rehearsal and those of past passes. Pure."""
    read_again = rehearsed.bytes_after if is_verified else 0
    report = replace(
        rehearsed, bytes_read=rehearsed.bytes_read + read_again, is_verified=is_verified
    )
    worked = rehearsed.seconds - rehearsed.throttled_seconds
    reading = worked / rehearsed.bytes_read if rehearsed.bytes_read else 0.0
    writing = seconds_a_written_byte(past, reading)
    working = report.bytes_read * reading + report.bytes_written * writing
    seconds = max(working, throttle_seconds(report.bytes_read, report.bytes_written, rates))
    return replace(report, seconds=seconds, throttled_seconds=max(seconds - working, 0.0))


def seconds_a_written_byte(past: Iterable[PassReport], reading: float) -> float:
    """How long a byte takes to be written and synced. Pure.

    A rehearsal tells how long one takes to be read and judged, `reading`, but waits for no disk. What
    past passes took beyond that was the disk's; without them a byte is written as fast as read.
    """
    large = [each for each in past if each.bytes_written >= WRITTEN_BYTES_MIN]
    seconds = sum(each.seconds - each.throttled_seconds for each in large)
    seconds -= sum(each.bytes_read for each in large) * reading
    written = sum(each.bytes_written for each in large)
    return max(seconds / written, reading) if written else reading


def throttle_seconds(bytes_read: int, bytes_written: int, rates: IoRates) -> float:
    """How long the budgets let so many bytes take, at least. Pure."""
    return max(
        (bytes_read + bytes_written) / rates.total,
        bytes_read / rates.read,
        bytes_written / rates.write,
    )
