"""One cleaning pass: plan -> map -> recopy -> verify -> swap. Start reading here, at `clean`.

    plan     which segments, between which offsets, at which generation of the log (a plain value)
    map      the dirty section's keys -> the offset of each one's last record
    recopy   group by group, oldest first, the whole log from its start to the map's end
    verify   each group's output, once it is synced, against what was told from its source
    swap     each group as soon as it is verified, by one manifest commit

So a pass needs the disk space of one more group, not of one more log. An older group is never
behind a newer one, so a crash between two groups cannot bring back a value whose tombstone is gone.
The clean offset moves with the last swap: a pass that is cut off costs only its own work.

Source: Apache Kafka, Cleaner.java `doClean`; architecture.md, decision 5.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Protocol

from cleaner.group import GroupBounds, group_segments
from cleaner.kernel import BatchFilter, OffsetMap
from cleaner.map import DirtySection, MappedSection, map_dirty_section
from cleaner.meter import PassMeter
from cleaner.pick import Assessment, Reason, horizon_is_due
from cleaner.progress import Phase
from cleaner.recopy import Recopy
from cleaner.report import GroupReport, PassReport, group_report
from cleaner.settings import CleanerSettings
from cleaner.verify_pass import PassVerifier, VerificationFailed
from protocol.errors import ProtocolError
from storage.cleaned_segment import CleanedSegment, CleanedSegmentWriter
from storage.cleaning_view import CleanableSegment, CleaningView
from storage.errors import StorageError, SwapRefused
from storage.manifest import SegmentRow


class CleanableLog(Protocol):
    """What a pass does to a log; `storage.log.PartitionLog` is one."""

    @property
    def generation(self) -> int: ...
    @property
    def log_start_offset(self) -> int: ...
    def new_cleaned_segment(self, base_offset: int) -> CleanedSegmentWriter: ...
    def swap(
        self,
        sources: Sequence[SegmentRow],
        cleaned: Sequence[CleanedSegment],
        *,
        generation: int,
        clean_offset: int | None,
    ) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningPlan:
    """What a pass is going to do, decided at one moment; executing it reads nothing else."""

    view: CleaningView
    """The log as it was, with its generation and readable segments."""
    reason: Reason
    start_offset: int
    """The first dirty offset."""
    end_offset: int
    """The first uncleanable offset."""
    dirty_ratio: float
    now_ms: int
    """Up to here delete horizons have passed."""
    stamp_ms: int
    """From here new delete horizons count; `now_ms` but after a step of the clock."""

    @property
    def delete_horizon_ms(self) -> int:
        """The horizon of tombstones that are cleaned for the first time."""
        return self.stamp_ms + self.view.config.delete_retention_ms

    @property
    def is_all_clean(self) -> bool:
        """Whether there is nothing to map: only horizons can make a record go."""
        return self.start_offset >= self.end_offset

    def dirty_segments(self) -> tuple[CleanableSegment, ...]:
        """The segments with offsets in [start_offset, end_offset)."""
        return tuple(
            segment
            for segment in self.view.segments
            if segment.row.end_offset > self.start_offset
            and segment.row.base_offset < self.end_offset
        )


def plan_pass(
    view: CleaningView, assessment: Assessment, *, now_ms: int, stamp_ms: int
) -> CleaningPlan:
    """Turn an eligible log's assessment into a plan."""
    assert assessment.reason is not None
    return CleaningPlan(
        view=view,
        reason=assessment.reason,
        start_offset=assessment.bounds.first_dirty_offset,
        end_offset=assessment.bounds.first_uncleanable_offset,
        dirty_ratio=assessment.dirty_ratio,
        now_ms=now_ms,
        stamp_ms=stamp_ms,
    )


def clean(
    log: CleanableLog,
    plan: CleaningPlan,
    settings: CleanerSettings,
    *,
    meter: PassMeter,
    monotonic: Callable[[], float],
) -> PassReport:
    """Execute a plan, in the calling thread, and say what was done.

    Raises:
        CleaningAborted: the meter was told to stop, or the log's generation moved; also where that
            made something fail.
        SwapRefused: the log changed between the last look at it and a swap.
        CorruptBatch, DecompressionTooLarge: a batch is damaged, or will not inflate in bounds.
        MapTooSmall: the offset map cannot hold the keys of one batch.
        VerificationFailed: a group's output is not what must remain of it, or the map is wrong.
        StorageError: the disk failed.
    Whatever is raised, the groups swapped in before it stay, and the rest of the log is untouched.
    """
    try:
        return _execute(log, plan, settings, meter, monotonic)
    except (ProtocolError, StorageError, VerificationFailed):
        # What was cut off or deleted under the pass looks damaged to it.
        meter.check()
        raise


def _execute(
    log: CleanableLog,
    plan: CleaningPlan,
    settings: CleanerSettings,
    meter: PassMeter,
    monotonic: Callable[[], float],
) -> PassReport:
    started = monotonic()
    meter.progress.expect(Phase.MAP, sum(each.row.size for each in plan.dirty_segments()))
    meter.progress.expect(Phase.RECOPY, _bytes_in(plan_groups(plan, plan.end_offset, 0)))
    offset_map = OffsetMap(settings.map_bytes, plan.view.hash_key, settings.map_load_factor)
    mapped = _map(plan, offset_map, settings, meter)
    log_start_offset = log.log_start_offset
    groups = plan_groups(plan, mapped.end_offset, log_start_offset)
    meter.progress.expect(Phase.RECOPY, _bytes_in(groups))
    reads_all = _leave_no_gap(groups, log_start_offset)
    batch_filter = _filter(plan, offset_map, mapped, settings, stamps_markers=reads_all)
    tally: Counter[str] = Counter()
    verifier = PassVerifier(batch_filter, settings, meter=meter, monotonic=monotonic)
    verifier.check_map(offset_map, groups)
    reports: list[GroupReport] = []
    for group in groups:
        before = batch_filter.counts
        recopy = Recopy(batch_filter, log.new_cleaned_segment, meter=meter)
        clean_offset = mapped.end_offset if group is groups[-1] else None
        cleaned = _recopy(plan, group, recopy, verifier, settings, meter)
        _swap(log, plan, group, recopy, cleaned, clean_offset)
        _count(group, cleaned, tally)
        rows = [segment.row for segment in group], [segment.row for segment in cleaned]
        reports.append(group_report(*rows, before, batch_filter.counts))
    seconds = monotonic() - started
    report = _report(plan, offset_map, mapped.end_offset, batch_filter, tally, meter, seconds)
    return replace(
        report,
        is_verified=settings.verify,
        verify_seconds=verifier.seconds,
        group_reports=tuple(reports),
    )


def _bytes_in(groups: Sequence[Sequence[CleanableSegment]]) -> int:
    return sum(segment.row.size for group in groups for segment in group)


def plan_groups(
    plan: CleaningPlan, map_end: int, log_start_offset: int
) -> tuple[tuple[CleanableSegment, ...], ...]:
    """The groups to recopy, oldest first: everything from the log start to the map's end.

    Where nothing new is mapped no record is superseded, so only groups with a due horizon are
    touched.

    Args:
        log_start_offset: as it is now: what retention has deleted since the plan is left out.
    """
    config = plan.view.config
    bounds = GroupBounds(
        segment_bytes=config.segment_bytes,
        segment_index_bytes=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
    )
    by_row = {segment.row: segment for segment in plan.view.segments}
    rows = [
        row for row in by_row if row.base_offset < map_end and row.end_offset > log_start_offset
    ]
    groups = group_segments(rows, bounds)
    if map_end <= plan.start_offset:
        groups = tuple(
            group for group in groups if any(horizon_is_due(row, plan.now_ms) for row in group)
        )
    return tuple(tuple(by_row[row] for row in group) for group in groups)


def _map(
    plan: CleaningPlan, offset_map: OffsetMap, settings: CleanerSettings, meter: PassMeter
) -> MappedSection:
    if plan.is_all_clean:
        offset_map.clear(0)
        offset_map.end_offset = plan.end_offset
        return MappedSection(end_offset=plan.end_offset, bound_offset=plan.end_offset)
    meter.progress.enter(Phase.MAP)
    section = DirtySection(
        segments=plan.dirty_segments(), start_offset=plan.start_offset, end_offset=plan.end_offset
    )
    return map_dirty_section(
        section,
        offset_map,
        decompressed_bytes_max=settings.decompressed_bytes_max,
        chunk_bytes=settings.chunk_bytes,
        meter=meter,
    )


def _leave_no_gap(groups: Sequence[Sequence[CleanableSegment]], log_start_offset: int) -> bool:
    """Whether nothing from the log's start to the groups' end lies outside them."""
    rows = [segment.row for group in groups for segment in group]
    begins_at_start = bool(rows) and rows[0].base_offset <= log_start_offset
    return begins_at_start and all(a.end_offset == b.base_offset for a, b in pairwise(rows))


def _filter(
    plan: CleaningPlan,
    offset_map: OffsetMap,
    mapped: MappedSection,
    settings: CleanerSettings,
    *,
    stamps_markers: bool,
) -> BatchFilter:
    return BatchFilter(
        offset_map,
        end_offset=mapped.end_offset,
        tail_offset=mapped.bound_offset - 1,
        now_ms=plan.now_ms,
        delete_retention_ms=plan.delete_horizon_ms - plan.now_ms,
        decompressed_bytes_max=settings.decompressed_bytes_max,
        producer_last_offsets=plan.view.producer_last_offsets,
        producer_marker_epochs=plan.view.producer_marker_epochs,
        index_interval_bytes=plan.view.config.index_interval_bytes,
        keeps_unkeyed=plan.view.config.keeps_unkeyed_records,
        transactions=mapped.transactions,
        stamps_markers=stamps_markers,
        start_offset=plan.start_offset,
        is_verified=settings.verify,
    )


def _recopy(
    plan: CleaningPlan,
    group: tuple[CleanableSegment, ...],
    recopy: Recopy,
    verifier: PassVerifier,
    settings: CleanerSettings,
    meter: PassMeter,
) -> tuple[CleanedSegment, ...]:
    """Write a group's cleaned segments and verify them; nothing of them stays if that fails."""
    try:
        meter.progress.enter(Phase.RECOPY)
        cleaned = recopy.run(group, chunk_bytes=settings.chunk_bytes, now_ms=plan.stamp_ms)
        meter.progress.enter(Phase.VERIFY)
        verifier.check_group(group, cleaned)
        meter.check()
    except BaseException:
        recopy.discard()
        raise
    return cleaned


def _swap(
    log: CleanableLog,
    plan: CleaningPlan,
    group: tuple[CleanableSegment, ...],
    recopy: Recopy,
    cleaned: tuple[CleanedSegment, ...],
    clean_offset: int | None,
) -> None:
    if clean_offset is None and recopy.is_verbatim and _is_known(group, cleaned):
        # Readers keep their file, and the page cache what it has of it.
        recopy.discard()
        return
    try:
        sources = [segment.row for segment in group]
        log.swap(sources, cleaned, generation=plan.view.generation, clean_offset=clean_offset)
    except SwapRefused:
        # Only here is it sure that no manifest lists them; else the next recovery decides.
        recopy.discard()
        raise


def _is_known(group: tuple[CleanableSegment, ...], cleaned: tuple[CleanedSegment, ...]) -> bool:
    """Whether the manifest says all of the group that is known of its output."""
    old, new = group[0].row, cleaned[0].row
    same = replace(old, file_version=new.file_version, created_ms=new.created_ms) == new
    return same and len(group) == len(cleaned) == 1


def _count(
    group: tuple[CleanableSegment, ...],
    cleaned: tuple[CleanedSegment, ...],
    tally: Counter[str],
) -> None:
    tally["groups"] += 1
    tally["segments_before"] += len(group)
    tally["segments_after"] += len(cleaned)
    tally["bytes_before"] += sum(segment.row.size for segment in group)
    tally["bytes_after"] += sum(segment.row.size for segment in cleaned)


def _report(
    plan: CleaningPlan,
    offset_map: OffsetMap,
    map_end: int,
    batch_filter: BatchFilter,
    tally: Counter[str],
    meter: PassMeter,
    seconds: float,
) -> PassReport:
    counts = batch_filter.counts
    return PassReport(
        topic=plan.view.topic_partition.topic,
        partition=plan.view.topic_partition.partition,
        reason=plan.reason.name,
        start_offset=plan.start_offset,
        end_offset=map_end,
        planned_end_offset=plan.end_offset,
        bytes_read=meter.bytes_read,
        bytes_written=meter.bytes_written,
        bytes_before=tally["bytes_before"],
        bytes_after=tally["bytes_after"],
        records_before=sum(count.records for count in counts.values()),
        records_after=sum(count.records for verdict, count in counts.items() if verdict.is_kept),
        records_by_verdict={verdict.value: count.records for verdict, count in counts.items()},
        keys_mapped=offset_map.size,
        keys_capacity=offset_map.capacity,
        groups=tally["groups"],
        segments_before=tally["segments_before"],
        segments_after=tally["segments_after"],
        dirty_ratio=plan.dirty_ratio,
        seconds=seconds,
        throttled_seconds=meter.throttled_seconds,
    )
