"""One cleaning pass: plan -> index -> mark -> group -> recopy -> verify -> swap. Start here, at `clean`.

    plan     which segments, between which offsets, at which generation of the log (a plain value)
    index    every segment has its key sidecar: only what has none is read
    mark     the dirty section's keys -> one bit for each superseded record of the log
    group    which segments need work at all, and with which neighbours they are rewritten
    recopy   only those, oldest first, by the marks
    verify   each group's output, once it is synced, against what was told from its source
    swap     each group as soon as it is verified, by one manifest commit

So a pass needs the disk space of one more group, not of one more log. An older group is never
behind a newer one, so a crash between two groups cannot bring back a value whose tombstone is gone.
The clean offset moves with the last swap, or alone if there was none. A pass that is cut off costs
only the work on its last group: in what was swapped in nothing dies any more, so the next pass does
not touch it.

Source: Apache Kafka, Cleaner.java `doClean`; architecture.md, decision 5.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from cleaner.cleaning_plan import CleanableLog, CleaningPlan
from cleaner.index import IndexedSegment, SegmentIndex, over_sidecars
from cleaner.mark import (
    DirtySection,
    KeyParts,
    dirty_section,
    map_beside_marks,
    mark_window,
    scan_bytes,
    windows,
)
from cleaner.meter import CleaningAborted, PassMeter
from cleaner.progress import PassProgress, Phase
from cleaner.report import PassReport
from cleaner.rewrite import Rewriting, leave_no_gap
from cleaner.settings import CleanerSettings
from cleaner.verify_pass import PassVerifier
from cleaner.work_left import MarkLeft
from storage.errors import DamagedSidecar


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
            made something fail, or where a sidecar was damaged after the first swap.
        SwapRefused: the log changed between the last look at it and a swap.
        CorruptBatch, DecompressionTooLarge: a batch is damaged, or will not inflate in bounds.
        VerificationFailed: a group's output is not what must remain of it, the map is wrong, or a
            sidecar was.
        StorageError: the disk failed.
    Whatever is raised, the groups swapped in before it stay, and the rest of the log is untouched.
    """
    return over_sidecars(
        plan.view.hash_key,
        settings,
        meter,
        lambda index: _execute(log, plan, settings, index, meter, monotonic),
    )


def _execute(
    log: CleanableLog,
    plan: CleaningPlan,
    settings: CleanerSettings,
    index: SegmentIndex,
    meter: PassMeter,
    monotonic: Callable[[], float],
) -> PassReport:
    started = monotonic()
    log_start_offset = log.log_start_offset
    indexed = index.of(plan.segments_from(log_start_offset))
    meter.progress.enter(Phase.MARK)
    section = dirty_section(indexed, start_offset=plan.start_offset, end_offset=plan.end_offset)
    segments = [each for each in indexed if each.row.base_offset < section.end_offset]
    verifier = PassVerifier(settings, meter=meter, monotonic=monotonic)
    sees_all = leave_no_gap([segment.row for segment in segments], log_start_offset)
    rewriting = Rewriting(
        log, plan, section, settings, sees_all=sees_all, verifier=verifier, meter=meter
    )
    spans = windows([each.totals.entries for each in segments], settings.marks_bytes)
    parts = KeyParts(section, map_beside_marks(plan.view.hash_key, segments, spans, settings))
    _rewrite_all(segments, spans, section, parts, rewriting, verifier, meter.progress)
    if not rewriting.has_committed and section.end_offset > plan.view.clean_offset:
        log.commit_clean_offset(section.end_offset, generation=plan.view.generation)
    report = _report(plan, section, parts, rewriting, meter)
    return replace(
        report,
        sidecars_built=index.built,
        seconds=monotonic() - started,
        is_verified=settings.verify,
        verify_seconds=verifier.seconds,
    )


def _rewrite_all(
    segments: Sequence[IndexedSegment],
    spans: Sequence[slice],
    section: DirtySection,
    parts: KeyParts,
    rewriting: Rewriting,
    verifier: PassVerifier,
    progress: PassProgress,
) -> None:
    left = MarkLeft(progress)
    to_map = scan_bytes(section.sources)
    try:
        for number, span in enumerate(spans, 1):
            window, later = segments[span], segments[span.stop :]
            left.begin_window(scan_bytes(later) + to_map * (len(spans) - number))
            marked = mark_window(window, section, parts, verifier, tell_left=left.tell)
            rewriting.run(
                list(zip(window, marked, strict=True)),
                is_last=span is spans[-1],
                later_bytes=sum(segment.recopied_bytes for segment in later),
            )
    except DamagedSidecar as error:
        if rewriting.tally["groups"]:
            # The plan speaks of segments that are not there any more.
            raise CleaningAborted(f"{error}; the next pass makes it anew") from error
        raise


def _report(
    plan: CleaningPlan,
    section: DirtySection,
    parts: KeyParts,
    rewriting: Rewriting,
    meter: PassMeter,
) -> PassReport:
    counts = rewriting.batch_filter.counts
    tally = rewriting.tally
    return PassReport(
        topic=plan.view.topic_partition.topic,
        partition=plan.view.topic_partition.partition,
        reason=plan.reason.name,
        start_offset=plan.start_offset,
        end_offset=section.end_offset,
        planned_end_offset=plan.end_offset,
        log_end_offset=plan.view.log_end_offset,
        bytes_read=meter.bytes_read,
        bytes_written=meter.bytes_written,
        bytes_before=tally["bytes_before"],
        bytes_after=tally["bytes_after"],
        bytes_untouched=tally["bytes_untouched"],
        records_before=sum(count.records for count in counts.values()),
        records_after=sum(count.records for verdict, count in counts.items() if verdict.is_kept),
        records_by_verdict={verdict.value: count.records for verdict, count in counts.items()},
        keys_mapped=parts.keys,
        keys_capacity=parts.capacity,
        parts=parts.count,
        groups=tally["groups"],
        segments_before=tally["segments_before"],
        segments_after=tally["segments_after"],
        segments_untouched=tally["segments_untouched"],
        dirty_ratio=plan.dirty_ratio,
        throttled_seconds=meter.throttled_seconds,
        group_reports=tuple(rewriting.group_reports),
    )
