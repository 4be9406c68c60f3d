"""Rewrite the segments that need it, window by window, oldest first: group -> recopy -> verify -> swap.

Segments in no group are neither read nor touched; their transactions are tracked through the special
rows of their sidecars, so that later markers are judged as if the segments had been read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import pairwise

from cleaner.kernel.kernel import BatchFilter, BatchSurvey, sum_sizes
from cleaner.pacing.meter import PassMeter
from cleaner.pacing.progress import Phase
from cleaner.pacing.settings import CleanerSettings
from cleaner.pacing.work_left import Cost, WorkLeft
from cleaner.passes.certificate import NO_CERTIFICATES, PassCertificates
from cleaner.passes.dirty_section import DirtySection
from cleaner.passes.index import IndexedSegment
from cleaner.passes.mark import Marked
from cleaner.passes.recopy import Recopy
from cleaner.passes.unkeyed import Mover, UnkeyedMove
from cleaner.passes.verify_pass import PassVerifier, VerificationFailed
from cleaner.rules.cleaning_plan import CleanableLog, CleaningPlan
from cleaner.rules.group import Findings, GroupBounds, Work, group_segments, has_passed, work_on
from cleaner.rules.report import GroupReport
from cleaner.rules.spared import DeadRecords, may_stay
from cleaner.rules.step import KeysDiffer, Outranked
from cleaner.rules.unkeyed import UnkeyedRule
from protocol.wire.errors import CorruptBatch, DecompressionTooLarge
from protocol.wire.numbers import OFFSET_MAX, Offset
from storage.files.errors import SwapRefused
from storage.formats.manifest import SegmentRow
from storage.segment.cleaned_segment import CleanedSegment

OUTRANKED_EXAMPLES_MAX = 10
"""So many outranked records are named in the report of a pass."""

Group = Sequence[tuple[IndexedSegment, Marked]]
"""Neighbouring segments, each with the marks of its superseded records."""


class Rewriting:
    """The rewriting part of one pass. Used by the pass's thread only."""

    __slots__ = (
        "_certificates", "_clean_offset_max", "_end_offset", "_has_fences", "_log", "_meter", "_plan",
        "_settings", "_survey", "_unkeyed", "_verifier", "batch_filter", "damaged", "group_reports",
        "has_committed", "outranked_examples", "tally",
    )  # fmt: skip

    def __init__(
        self,
        log: CleanableLog,
        plan: CleaningPlan,
        section: DirtySection,
        settings: CleanerSettings,
        *,
        sees_whole_log: bool,
        verifier: PassVerifier,
        meter: PassMeter,
        certificates: PassCertificates = NO_CERTIFICATES,
        mover: Mover | None = None,
    ) -> None:
        """
        Args:
            sees_whole_log: whether the windows begin at the log start and have no gaps.
            mover: takes records without a key, if the topic moves them.
        """
        # Constant after construction.
        self._log = log
        self._plan = plan
        self._end_offset = section.end_offset
        self._clean_offset_max = section.clean_offset_max
        self._has_fences = bool(section.fences)
        self._settings = settings
        self._verifier = verifier
        self._meter = meter
        self._certificates = certificates
        # State.
        self.batch_filter = _filter(plan, section, settings, stamps_markers=sees_whole_log)
        self._survey = _survey(plan, section, stamps_markers=sees_whole_log)
        self._unkeyed = _unkeyed_move(plan, section, settings, mover, meter)
        self.outranked_examples: list[Outranked] = []
        self.tally: Counter[str] = Counter()
        """Counts of groups, segments and bytes, by their names in `PassReport`."""
        self.group_reports: list[GroupReport] = []
        self.has_committed = False
        """Whether a swap has committed the clean offset."""
        self.damaged: IndexedSegment | None = None
        """The segment whose damage has ended the pass."""

    @property
    def stamp_ms(self) -> int:
        """The plan's wall time for what it writes."""
        return self._plan.stamp_ms

    @property
    def is_tail_lost(self) -> bool:
        """Whether the last record of the pass stays, although another one outranks it, because nothing
        follows it yet. Known once the last group was recopied."""
        return self.batch_filter.lost_tail_offset >= 0

    def note(self, segment: IndexedSegment) -> None:
        """Note which segment is being read, because its damage may end the pass."""
        self.damaged = segment

    @property
    def unkeyed_moved(self) -> int:
        """How many records without a key were moved to another topic."""
        return 0 if self._unkeyed is None else self._unkeyed.moved

    @property
    def unkeyed_kept_because(self) -> str:
        """Why records without a key stay that should have been moved."""
        return "" if self._unkeyed is None else self._unkeyed.kept_because

    @property
    def is_cut_short(self) -> bool:
        """Whether the pass leaves records dirty that it has judged, so that it does not count as
        finished: because of a fence, or of its last record."""
        return self._has_fences or self.is_tail_lost

    @property
    def clean_offset(self) -> Offset:
        """The clean offset after the pass: its end, or the first fence, or the batch of its last record,
        if that has lost.

        Such a record stays dirty, because below the clean offset each key has one record.
        """
        lost = self.batch_filter.lost_tail_offset
        end_offset = min(lost if lost >= 0 else self._end_offset, self._clean_offset_max)
        return Offset(max(end_offset, self._plan.start_offset))

    def run(self, window: Group, *, is_last: bool, later_bytes: int = 0) -> None:
        """Rewrite a window; the last swap of the last window also commits the clean offset.

        Args:
            later_bytes: bytes that later windows may have to read.
        """
        for _, its in window:
            self.tally["outranked"] += its.outranked
            room = OUTRANKED_EXAMPLES_MAX - len(self.outranked_examples)
            self.outranked_examples += its.examples[:room]
        works = self._plan_work(window)
        groups = group_segments(works, group_bounds(self._plan))
        left = self._work_left(window, works, groups, later_bytes)
        self._count_spared(window, {row for rows in groups for row in rows})
        group_sizes = {rows[0]: len(rows) for rows in groups}
        at = 0
        while at < len(window):
            count = group_sizes.get(window[at][0].row, 0)
            if count:
                group = window[at : at + count]
                self.rewrite(group, takes_offset=is_last and group[0][0].row is groups[-1][0])
                left.done([segment.row for segment, _ in group])
            else:
                self._skip_segment(window[at][0])
            at += max(count, 1)

    def _count_spared(self, window: Group, rewritten: AbstractSet[SegmentRow]) -> None:
        """Count the superseded records that stay, before a swap commits whether there are any."""
        for segment, its in window:
            if its.superseded and segment.row not in rewritten:
                self.tally["segments_spared"] += 1
                self.tally["records_spared"] += its.superseded

    def _plan_work(self, window: Group) -> list[Work]:
        """Returns the work of a window; it surveys each segment's special rows, so call it only once."""
        return [
            work_of(self._plan, segment.row, self.findings(segment, its)) for segment, its in window
        ]

    def findings(self, segment: IndexedSegment, its: Marked) -> Findings:
        """Returns the findings on a segment; with transactions call it once each, in offset order."""
        stays = self._plan.spares and may_stay(
            dead_records(segment, its), self._plan.view.config.min_segment_dead_ratio
        )
        marks = bytearray(len(its.marks)) if stays else its.marks
        return Findings(
            totals=segment.totals,
            superseded=its.superseded,
            changed_batches=self._changed_batches(segment, marks),
            may_stay=stays,
        )

    def _work_left(
        self,
        window: Group,
        works: Sequence[Work],
        groups: Sequence[Sequence[SegmentRow]],
        later_bytes: int,
    ) -> WorkLeft:
        is_verified = self._settings.verify
        costs = {
            work.row: Cost(segment.recopied_bytes, work.bytes_left if is_verified else 0)
            for (segment, _), work in zip(window, works, strict=True)
        }
        return WorkLeft(self._meter.progress, costs, groups, later_bytes=later_bytes)

    def _changed_batches(self, segment: IndexedSegment, marks: bytearray) -> int:
        if not segment.totals.special_rows:
            return 0
        is_due = has_passed(segment.totals.least_delete_horizon_ms, self._plan.now_ms)
        return sum(
            self._survey.look(
                block.data,
                marks,
                base_offset=segment.row.base_offset,
                first_entry=block.first_entry,
                horizon_is_due=is_due,
            )
            for block in segment.blocks()
        )

    def _skip_segment(self, segment: IndexedSegment) -> None:
        """Leave a segment as it is, and only track its transactions."""
        self.tally["segments_untouched"] += 1
        self.tally["bytes_untouched"] += segment.row.size
        self.tally["unkeyed_untouched"] += segment.totals.unkeyed
        if segment.totals.special_rows:
            for block in segment.blocks():
                self.batch_filter.skip(block.data, base_offset=segment.row.base_offset)

    def rewrite(self, group: Group, *, takes_offset: bool) -> None:
        """Recopy, verify and swap one group; `takes_offset`: the swap commits the clean offset too."""
        strategy = self._plan.view.config.strategy
        # Batches beyond the pass's end are copied unread, and those of transactions whose markers may
        # lie in a fence.
        is_judged = group[-1][0].row.end_offset <= self._end_offset and not self._has_fences
        recopy = Recopy(
            self.batch_filter,
            lambda base_offset: self._certificates.watch(
                self._log.new_cleaned_segment(base_offset, strategy)
            ),
            has_sidecars=self._settings.keeps_key_sidecars,
            meter=self._meter,
            can_check_keys=is_judged,
            is_verified=self._settings.verify,
        )
        if self._unkeyed is not None:
            may_drop = self._unkeyed.move(self._noted(group))
            self.damaged = None
            self.batch_filter.keeps_unkeyed = not may_drop
        cleaned = self._recopy(group, recopy)
        is_end = takes_offset and not self.is_cut_short
        self._swap(group, recopy, cleaned, self._end_offset if is_end else None)
        self.group_reports.append(
            GroupReport(
                sources=tuple(segment.row for segment, _ in group),
                outputs=tuple(segment.row for segment in cleaned),
                by_source=tuple(recopy.by_source),
                account=self.batch_filter.account,
            )
        )
        self.tally["groups"] += 1
        self.tally["segments_before"] += len(group)
        self.tally["segments_after"] += len(cleaned)
        self.tally["bytes_before"] += sum(segment.row.size for segment, _ in group)
        self.tally["bytes_after"] += sum(segment.row.size for segment in cleaned)
        self.tally["keys_to_check_bytes"] += recopy.keys_to_check_bytes

    def _noted(self, group: Group) -> Iterator[IndexedSegment]:
        """Yield the segments of a group; note the one being read, as its damage may end the pass."""
        for segment, _ in group:
            self.note(segment)
            yield segment

    def _recopy(self, group: Group, recopy: Recopy) -> tuple[CleanedSegment, ...]:
        """Write a group's cleaned segments and verify them; they are removed if that fails."""
        try:
            self._meter.progress.enter(Phase.RECOPY)
            cleaned = recopy.run(group, now_ms=self._plan.stamp_ms)
            if self._unkeyed is not None:
                self._unkeyed.check(recopy.by_source)
            self._meter.progress.enter(Phase.VERIFY)
            rows = [segment.row for segment, _ in group]
            marked = sum(its.superseded for _, its in group)
            self._verifier.check_group(
                self.batch_filter.account,
                rows,
                cleaned,
                marked=marked,
                hold_offset=self._plan.hold.offset,
                key_sums=recopy.key_sums,
            )
            self._meter.check()
        except KeysDiffer as error:
            recopy.discard()
            for segment, _ in group:
                segment.segment.drop_key_sidecar()
            raise VerificationFailed(f"{error}; the next pass rebuilds its key sidecar") from error
        except (CorruptBatch, DecompressionTooLarge):
            self.damaged = group[len(recopy.by_source)][0]
            recopy.discard()
            raise
        except BaseException:
            recopy.discard()
            raise
        return cleaned

    def _swap(
        self,
        group: Group,
        recopy: Recopy,
        cleaned: tuple[CleanedSegment, ...],
        clean_offset: Offset | None,
    ) -> None:
        sources = [segment.row for segment, _ in group]
        if recopy.is_verbatim and _is_in_manifest(sources, cleaned):
            # Nothing changed: readers keep their open file, and the page cache stays warm.
            recopy.discard()
            return
        number = self._certify(recopy, sources, cleaned, clean_offset)
        try:
            with self._certificates.swapping(number):
                self._log.swap(
                    sources,
                    cleaned,
                    generation=self._plan.view.generation,
                    clean_offset=clean_offset,
                    has_history=self.has_history_after(is_last=clean_offset is not None),
                )
        except SwapRefused:
            # Only after SwapRefused is it certain that no manifest lists them; otherwise recovery
            # decides.
            recopy.discard()
            raise
        self.has_committed = clean_offset is not None

    def _certify(
        self,
        recopy: Recopy,
        sources: Sequence[SegmentRow],
        cleaned: tuple[CleanedSegment, ...],
        clean_offset: Offset | None,
    ) -> int | None:
        """Write the group's certificate; if that fails, its cleaned segments are removed."""
        try:
            return self._certificates.certify(
                self._plan,
                sources,
                cleaned,
                self.batch_filter.account,
                clean_offset=clean_offset,
                is_verified=self._settings.verify,
            )
        except BaseException:
            recopy.discard()
            raise

    def has_history_after(self, *, is_last: bool) -> bool:
        """Returns whether keys may have older values below the clean offset after a commit.

        Args:
            is_last: whether it is the pass's last one: it ends a history that no setting keeps, unless a
                record that has lost stays there, or a fence.
        """
        plan, ends = self._plan, is_last and not self.is_cut_short
        if plan.leaves_history or (is_last and self.tally["records_spared"] > 0):
            return True
        return plan.view.has_history and not ends


def dead_records(segment: IndexedSegment, its: Marked) -> DeadRecords:
    """Returns the superseded records of a segment; their sizes only if they may stay.

    Raises:
        DamagedSidecar, CleaningAborted: see `IndexedSegment.blocks`.
    """
    all_bytes = dead_bytes = 0
    if its.superseded > 0 and its.deleted == 0:
        for block in segment.blocks():
            sizes = sum_sizes(block.data, its.marks, first_entry=block.first_entry)
            all_bytes += sizes[0]
            dead_bytes += sizes[1]
    return DeadRecords(
        count=its.superseded, deleted=its.deleted, bytes=dead_bytes, bytes_of_all=all_bytes
    )


def work_of(plan: CleaningPlan, row: SegmentRow, findings: Findings) -> Work:
    """Returns the work that a pass by this plan has with a segment. Pure."""
    return work_on(
        row,
        findings,
        now_ms=plan.now_ms,
        keeps_unkeyed=plan.view.config.keeps_unkeyed_records,
        hold_offset=plan.hold.offset,
    )


def group_bounds(plan: CleaningPlan) -> GroupBounds:
    """Returns the limits of groups in this plan's log. Pure."""
    config = plan.view.config
    return GroupBounds(
        segment_bytes=config.segment_bytes,
        segment_index_bytes=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
    )


def are_contiguous_from(rows: Sequence[SegmentRow], log_start_offset: int) -> bool:
    """Returns whether segments cover the log from its start to their end without gaps."""
    begins_at_start = bool(rows) and rows[0].base_offset <= log_start_offset
    return begins_at_start and all(a.end_offset == b.base_offset for a, b in pairwise(rows))


def _filter(
    plan: CleaningPlan, section: DirtySection, settings: CleanerSettings, *, stamps_markers: bool
) -> BatchFilter:
    return BatchFilter(
        plan.view.hash_key,
        end_offset=section.end_offset,
        tail_offset=section.end_offset - 1,
        now_ms=plan.now_ms,
        delete_retention_ms=min(plan.delete_horizon_ms - plan.now_ms, OFFSET_MAX),
        decompressed_bytes_max=settings.decompressed_bytes_max,
        producer_last_offsets=plan.view.producer_last_offsets,
        producer_marker_epochs=plan.view.producer_marker_epochs,
        index_interval_bytes=plan.view.config.index_interval_bytes,
        segment_bytes_max=_output_bytes_max(plan),
        keeps_unkeyed=plan.view.config.keeps_unkeyed_records,
        transactions=section.transactions,
        stamps_markers=stamps_markers,
        is_verified=settings.verify,
        hold_offset=plan.hold.offset,
        strategy=plan.view.config.strategy,
        codec=plan.view.config.cleaned_codec,
        codec_levels=plan.view.config.codec_levels,
    )


def _unkeyed_move(
    plan: CleaningPlan,
    section: DirtySection,
    settings: CleanerSettings,
    mover: Mover | None,
    meter: PassMeter,
) -> UnkeyedMove | None:
    """Returns what moves records without a key; None if the topic does not move them."""
    if not plan.view.config.moves_unkeyed_records:
        return None
    aborted = () if section.transactions is None else section.transactions.aborted
    why_not = "this cleaner cannot move records to another topic"
    if section.fences:
        # The rule does not know which records stay because a fence may hold their marker.
        why_not = f"{section.fences[0]} may hold the outcome of their transactions"
        mover = None
    return UnkeyedMove(
        mover,
        UnkeyedRule(end_offset=section.end_offset, aborted=aborted),
        decompressed_bytes_max=settings.decompressed_bytes_max,
        meter=meter,
        why_not=why_not,
    )


def _output_bytes_max(plan: CleaningPlan) -> int:
    """Returns the size at which an output continues in another segment, if more is left than expected.

    It is never below the size of the largest existing segment: splitting that one would only cost open
    files.
    """
    return max(plan.view.config.segment_bytes, *(row.size for row in plan.view.sealed_rows), 0)


def _survey(plan: CleaningPlan, section: DirtySection, *, stamps_markers: bool) -> BatchSurvey:
    return BatchSurvey(
        end_offset=section.end_offset,
        producer_last_offsets=plan.view.producer_last_offsets,
        producer_marker_epochs=plan.view.producer_marker_epochs,
        transactions=section.transactions,
        stamps_markers=stamps_markers,
        hold_offset=plan.hold.offset,
    )


def _is_in_manifest(sources: Sequence[SegmentRow], cleaned: Sequence[CleanedSegment]) -> bool:
    """Returns whether the manifest row of the output would be the same as that of its only source."""
    old, new = sources[0], cleaned[0].row
    same = replace(old, file_version=new.file_version, created_ms=new.created_ms) == new
    return same and len(sources) == len(cleaned) == 1
