"""One cleaning pass: plan -> index -> mark -> group -> recopy -> verify -> swap. Start here, at `clean`.

    plan     which segments, between which offsets, at which generation of the log (a plain value)
    index    make the missing key sidecars: only segments without one are read
    mark     the keys of the dirty section -> one bit for each superseded record of the log
    compare  with compaction.compare.keys: prove the marks by the keys themselves
    group    find the segments that need work, and the neighbours that are rewritten with them
    recopy   rewrite only those, oldest first, by the marks
    verify   compare each group's synced output with the account taken while its source was read
    swap     each verified group at once, by one manifest commit

So a pass needs extra disk space for one group, not for the whole log. Groups are swapped from old to
new, so a crash between two groups cannot bring back a value whose tombstone is gone. The clean offset
moves with the last swap, or in a commit of its own if there was no swap. An interrupted pass loses only
the work on its last group: the groups already swapped have nothing left to drop, so the next pass does
not touch them.

A damaged segment stays as it is, and the rest is cleaned around it (`cleaner/rules/fence.py`). If damage
is found only when a segment is recopied, the pass starts again with a fence.

Source: Apache Kafka, Cleaner.java `doClean`. See docs/design/cleaning.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from cleaner.pacing.meter import CleaningAborted, PassMeter
from cleaner.pacing.progress import PassProgress, Phase
from cleaner.pacing.settings import CleanerSettings
from cleaner.pacing.work_left import MarkLeft
from cleaner.passes.certificate import NO_CERTIFICATES, PassCertificates
from cleaner.passes.compare_keys import KeyComparison
from cleaner.passes.dirty_section import DirtySection, dirty_section, scan_bytes
from cleaner.passes.index import IndexedSegment, SegmentIndex, run_with_sidecars
from cleaner.passes.key_parts import KeyParts
from cleaner.passes.mark import mark_window
from cleaner.passes.memory import (
    history_beside,
    map_beside_marks,
    windows,
    with_half_the_memory,
)
from cleaner.passes.rewrite import Rewriting, are_contiguous_from
from cleaner.passes.unkeyed import Mover
from cleaner.passes.verify_pass import PassVerifier
from cleaner.rules.cleaning_plan import (
    CleanableLog,
    CleaningPlan,
    at_horizon_clock,
    held_by_fences,
)
from cleaner.rules.fence import Fence, as_known, fence_around, reason_of
from cleaner.rules.report import PassReport
from protocol.wire.errors import CorruptBatch, DecompressionTooLarge
from storage.files.errors import DamagedSidecar
from storage.formats.config_property import LONG_MAX


def clean(
    log: CleanableLog,
    plan: CleaningPlan,
    settings: CleanerSettings,
    *,
    meter: PassMeter,
    monotonic: Callable[[], float],
    certificates: PassCertificates = NO_CERTIFICATES,
    mover: Mover | None = None,
) -> PassReport:
    """Execute a plan in the calling thread. Returns the report of the pass.

    Args:
        certificates: get one for each group, before it is swapped, and the end of the pass.
        mover: takes records without a key, if the topic moves them; without one they stay.

    Raises:
        CleaningAborted: the pass was asked to stop, or the log's generation changed, also if another
            error was only a consequence of that.
        PlanOutdated: a sidecar or a segment was found damaged after the first swap.
        SwapRefused: the log changed between the last check and a swap.
        VerificationFailed: a group's output differs from what must remain, or the offset map or a
            sidecar was wrong.
        StorageError: the disk failed.
    In all cases the groups already swapped stay, and the rest of the log is untouched.
    """
    with certificates.ended() as ended:
        return ended(_cleaned(log, plan, settings, meter, monotonic, certificates, mover))


def _cleaned(
    log: CleanableLog,
    plan: CleaningPlan,
    settings: CleanerSettings,
    meter: PassMeter,
    monotonic: Callable[[], float],
    certificates: PassCertificates,
    mover: Mover | None,
) -> PassReport:
    """Execute the plan; start again, with a fence, when a segment is found damaged before the first
    swap."""
    met: list[Fence] = []
    while True:
        try:
            return run_with_sidecars(
                plan.view.hash_key,
                settings,
                meter,
                strategy=plan.view.config.strategy,
                work=lambda index: _execute(
                    log, plan, settings, index, met, meter, monotonic, certificates, mover
                ),
            )
        except _DamageMet as damage:
            # Each segment is met once at most, so this ends.
            meter.check()
            met.append(damage.fence)


class PlanOutdated(CleaningAborted):
    """The pass has swapped groups, and must start again with a new plan, which lists what they are now.

    What it has found damaged is known: the new pass rebuilds a sidecar, or cleans around a segment.
    """


class _DamageMet(Exception):
    """A segment with a sidecar is damaged, and nothing was swapped yet."""

    def __init__(self, fence: Fence) -> None:
        super().__init__(str(fence))
        self.fence = fence


def _execute(
    log: CleanableLog,
    plan: CleaningPlan,
    settings: CleanerSettings,
    index: SegmentIndex,
    met: Sequence[Fence],
    meter: PassMeter,
    monotonic: Callable[[], float],
    certificates: PassCertificates,
    mover: Mover | None,
) -> PassReport:
    started = monotonic()
    log_start_offset = log.log_start_offset
    indexed, found = index.index_around_damage(
        plan.segments_from(log_start_offset), met, now_ms=plan.stamp_ms
    )
    plan = held_by_fences(plan, found)
    meter.progress.enter(Phase.MARK)
    config = plan.view.config
    section = dirty_section(
        indexed,
        start_offset=plan.start_offset,
        end_offset=plan.end_offset,
        strategy=config.strategy,
        log_start_offset=log_start_offset,
        sweeps=plan.sweeps,
        history=config.history,
        now_ms=plan.now_ms,
        spares=plan.spares,
        fences=as_known(found, plan.known_fences),
    )
    plan = at_horizon_clock(plan, section.end_offset)
    segments = [each for each in indexed if each.row.base_offset < section.end_offset]
    verifier = PassVerifier(settings, meter=meter, monotonic=monotonic)
    sees_whole_log = are_contiguous_from([segment.row for segment in segments], log_start_offset)
    rewriting = Rewriting(
        log,
        plan,
        section,
        settings,
        sees_whole_log=sees_whole_log,
        verifier=verifier,
        meter=meter,
        certificates=certificates,
        mover=mover,
    )
    spans = windows(
        [each.totals.entries for each in segments], settings.marks_bytes, config.strategy
    )
    comparison = None
    if config.compaction_compare_keys:
        settings = with_half_the_memory(settings)
        comparison = KeyComparison(section, settings, meter=meter)
    parts = _parts(section, segments, spans, plan.view.hash_key, settings)
    _rewrite_all(segments, spans, section, parts, comparison, rewriting, verifier, meter.progress)
    _commit_end(log, plan, rewriting)
    report = _report(plan, section, parts, rewriting, meter)
    return replace(
        report,
        pass_id=certificates.pass_id,
        sidecars_built=index.built,
        keys_compared=comparison.keys if comparison else 0,
        undo_number=log.kept_number,
        seconds=monotonic() - started,
        is_verified=settings.verify,
        verify_seconds=verifier.seconds,
    )


def _commit_end(log: CleanableLog, plan: CleaningPlan, rewriting: Rewriting) -> None:
    """Commit the clean offset, if the last swap has not done so and something has changed."""
    moves = rewriting.clean_offset > plan.view.clean_offset
    has_history = rewriting.has_history_after(is_last=True)
    is_unfinished = rewriting.tally["groups"] > 0 and not rewriting.is_cut_short
    has_news = moves or is_unfinished or has_history < plan.view.has_history
    if has_news and not rewriting.has_committed:
        log.commit_clean_offset(
            rewriting.clean_offset,
            generation=plan.view.generation,
            is_finished=not rewriting.is_cut_short,
            has_history=has_history,
        )


def _parts(
    section: DirtySection,
    segments: Sequence[IndexedSegment],
    spans: Sequence[slice],
    hash_key: bytes,
    settings: CleanerSettings,
) -> KeyParts:
    """Returns the section's keys in parts that fit in the memory beside the marks."""
    offset_map = map_beside_marks(
        hash_key,
        segments,
        spans,
        settings,
        section.strategy,
        section.history,
        counts_records=section.counts_records,
    )
    return KeyParts(section, offset_map, history_beside(offset_map, hash_key, section, settings))


def _rewrite_all(
    segments: Sequence[IndexedSegment],
    spans: Sequence[slice],
    section: DirtySection,
    parts: KeyParts,
    comparison: KeyComparison | None,
    rewriting: Rewriting,
    verifier: PassVerifier,
    progress: PassProgress,
) -> None:
    left = MarkLeft(progress)
    to_map = section.scan_bytes
    try:
        for number, span in enumerate(spans, 1):
            window, later = segments[span], segments[span.stop :]
            to_mark = scan_bytes(later, section.strategy)
            left.begin_window(to_mark + to_map * (len(spans) - number))
            marked = mark_window(window, section, parts, verifier, report_left=left.report)
            work = list(zip(window, marked, strict=True))
            if comparison is not None:
                comparison.compare(work, later, rewriting.note)
                rewriting.damaged = None
            rewriting.run(
                work,
                is_last=span is spans[-1],
                later_bytes=sum(segment.recopied_bytes for segment in later),
            )
    except DamagedSidecar as error:
        if rewriting.tally["groups"]:
            # The plan names segments that the swaps have replaced.
            raise PlanOutdated(f"{error}; the next pass rebuilds it") from error
        raise
    except (CorruptBatch, DecompressionTooLarge) as error:
        damaged = rewriting.damaged
        if damaged is None:
            raise
        # Its sidecar was made when it was sound. Without one, each pass reads it and finds the damage.
        damaged.segment.drop_key_sidecar()
        if rewriting.tally["groups"]:
            raise PlanOutdated(f"{reason_of(error)}; the next pass cleans around it") from error
        raise _DamageMet(fence_around(damaged.row, error, rewriting.stamp_ms)) from error


def _report(
    plan: CleaningPlan,
    section: DirtySection,
    parts: KeyParts,
    rewriting: Rewriting,
    meter: PassMeter,
) -> PassReport:
    counts = rewriting.batch_filter.counts
    tally, config = rewriting.tally, plan.view.config
    return PassReport(
        topic=plan.view.topic_partition.topic,
        partition=plan.view.topic_partition.partition,
        reason=plan.reason.name,
        start_offset=plan.start_offset,
        end_offset=rewriting.clean_offset,
        planned_end_offset=plan.end_offset,
        log_end_offset=plan.view.log_end_offset,
        bytes_read=meter.bytes_read,
        bytes_written=meter.bytes_written,
        bytes_before=tally["bytes_before"],
        bytes_after=tally["bytes_after"],
        bytes_untouched=tally["bytes_untouched"],
        unkeyed_untouched=tally["unkeyed_untouched"],
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
        batches_unread=rewriting.batch_filter.batches_unread,
        keys_to_check_bytes=tally["keys_to_check_bytes"],
        dirty_ratio=plan.dirty_ratio,
        hold_offset=plan.hold.offset,
        held_by=plan.hold.by,
        strategy=str(plan.view.config.strategy),
        history=str(plan.view.config.history),
        history_due_ms=LONG_MAX if parts.history is None else parts.history.due_ms,
        sweeps=plan.sweeps,
        segments_spared=tally["segments_spared"],
        records_spared=tally["records_spared"],
        spared_due_ms=plan.due_ms_of_spared if tally["records_spared"] else LONG_MAX,
        horizon_clock_ms=plan.now_ms,
        is_tail_lost=rewriting.is_tail_lost,
        fences=tuple(section.fences),
        end_behind_fences=section.end_offset if section.fences else -1,
        outranked=rewriting.tally["outranked"],
        outranked_examples=tuple(rewriting.outranked_examples),
        unkeyed_moved=rewriting.unkeyed_moved,
        unkeyed_topic=config.compaction_unkeyed_topic if config.moves_unkeyed_records else "",
        unkeyed_kept_because=rewriting.unkeyed_kept_because,
        throttled_seconds=meter.throttled_seconds,
        group_reports=tuple(rewriting.group_reports),
    )
