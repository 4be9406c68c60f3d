"""Dry run: the real pass over the real log, with outputs that are thrown away.

    the view        the log as if its active segment had rolled, because `compact now` rolls it; its
                    upper bound is the high watermark, as always
    the log         records swaps instead of executing them
    sidecars        missing ones are made as scratch files, so the real pass makes them again; damaged
                    ones stay in place, so the real pass finds them again
    the segments    are written to `storage/files/null_files.py`, which counts bytes
    verification    is left out because there is no output to read; its reads are added to the report

So the verdicts, the groups and the manifest rows come from the code that a real pass runs; only times
are estimated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import count

from cleaner.inspect.rehearsed_segment import rehearsed_view, scratch_files
from cleaner.inspect.unswapped_log import NewSegment, UnswappedLog
from cleaner.pacing.meter import PassMeter
from cleaner.pacing.progress import Phase
from cleaner.pacing.settings import CleanerSettings
from cleaner.pacing.throttle import IoRates
from cleaner.passes.clean import clean
from cleaner.passes.unkeyed import Mover
from cleaner.rules.cleaning_plan import CleaningPlan
from cleaner.rules.report import GroupReport, PassReport
from protocol.wire.numbers import Offset
from storage.files.null_files import NullFileSystem
from storage.formats.manifest import UNKNOWN, SegmentRow
from storage.log.cleaning_view import CleaningView
from storage.log.log import PartitionLog
from storage.segment.cleaned_segment import CleanedSegmentWriter

WRITTEN_BYTES_MIN = 16 << 20
"""Passes that wrote less are ignored when the speed of the disk is estimated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """The prediction of a pass that would run now."""

    report: PassReport
    """The report of the pass, with its groups; its times are estimates under the current throttle."""
    replaced: tuple[GroupReport, ...]
    """The groups that would be swapped."""
    untouched: tuple[SegmentRow, ...]
    """The segments that would stay as they are."""
    rolls: bool
    """Whether the active segment would roll first."""
    map_bytes: int
    """Upper bound of the offset map's memory."""


class DryMeter(PassMeter):
    """The meter of a dry run: throttled for what it reads and for the scratch sidecars it writes."""

    __slots__ = ()

    def wrote(self, bytes_count: int) -> None:
        if self.progress.phase is Phase.INDEX:
            super().wrote(bytes_count)
        else:
            self.bytes_written += bytes_count
            self.check()


@dataclass(frozen=True, slots=True)
class StartOfView:
    """The numbers of a log that starts no earlier than a view, which may pretend that retention has
    deleted its oldest segments (`policy_preview.py`)."""

    log: PartitionLog
    view: CleaningView

    @property
    def generation(self) -> int:
        return self.log.generation

    @property
    def log_start_offset(self) -> Offset:
        return max(self.log.log_start_offset, self.view.log_start_offset)


def null_segments(log: PartitionLog) -> NewSegment:
    """Returns a factory of output segments that keep only their sizes."""
    fs, versions = NullFileSystem(), count(1)
    directory, hash_key = log.directory, log.identity.hash_key
    return lambda base_offset, strategy: CleanedSegmentWriter(
        fs, directory, base_offset, next(versions), hash_key, strategy
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
    mover: Mover | None = None,
) -> DryRun:
    """Rehearse a plan of a view `as_if_rolled`, in the calling thread. Raises as `clean`.

    Args:
        rates: the current limits of passes; `math.inf` for no limit.
        past: reports of earlier passes, from which the duration is estimated.
        mover: finds out whether records without a key would be moved, and moves none.
    """
    dry_log = UnswappedLog(StartOfView(log, plan.view), null_segments(log))
    with closing(scratch_files(log)) as scratch:
        report = clean(
            dry_log,
            replace(plan, view=rehearsed_view(plan.view, scratch)),
            replace(settings, verify=False),
            meter=meter,
            monotonic=monotonic,
            mover=mover,
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
    """Returns the expected report of the real pass, from its rehearsal and past passes. Pure."""
    read_again = rehearsed.bytes_after + rehearsed.keys_to_check_bytes if is_verified else 0
    report = replace(
        rehearsed, bytes_read=rehearsed.bytes_read + read_again, is_verified=is_verified
    )
    worked = rehearsed.seconds - rehearsed.throttled_seconds
    reading = worked / rehearsed.bytes_read if rehearsed.bytes_read else 0.0
    writing = seconds_per_written_byte(past, reading)
    working = report.bytes_read * reading + report.bytes_written * writing
    seconds = max(working, throttle_seconds(report.bytes_read, report.bytes_written, rates))
    return replace(report, seconds=seconds, throttled_seconds=max(seconds - working, 0.0))


def seconds_per_written_byte(past: Iterable[PassReport], reading: float) -> float:
    """Returns how long it takes to write and sync a byte. Pure.

    A rehearsal measures how long it takes to read and judge a byte (`reading`), but does not wait for
    the disk. The time that past passes took beyond that was spent on the disk. Without past passes a
    write is assumed to be as fast as a read.
    """
    large = [each for each in past if each.bytes_written >= WRITTEN_BYTES_MIN]
    seconds = sum(each.seconds - each.throttled_seconds for each in large)
    seconds -= sum(each.bytes_read for each in large) * reading
    written = sum(each.bytes_written for each in large)
    return max(seconds / written, reading) if written else reading


def throttle_seconds(bytes_read: int, bytes_written: int, rates: IoRates) -> float:
    """Returns how long these bytes take at least under the I/O budgets. Pure."""
    return max(
        (bytes_read + bytes_written) / rates.total,
        bytes_read / rates.read,
        bytes_written / rates.write,
    )
