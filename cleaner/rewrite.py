"""Rewrite what needs it, window by window, oldest first: group -> recopy -> verify -> swap.

Segments in no group are neither read nor touched; what they hold of transactions is followed by the
special rows of their sidecars, so that a marker behind them is judged as if they had been read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from cleaner.cleaning_plan import CleanableLog, CleaningPlan
from cleaner.group import Findings, GroupBounds, Work, group_segments, has_passed, work_on
from cleaner.index import IndexedSegment
from cleaner.kernel import BatchFilter, BatchSurvey
from cleaner.mark import DirtySection, Marked
from cleaner.meter import PassMeter
from cleaner.progress import Phase
from cleaner.recopy import Recopy
from cleaner.report import GroupReport
from cleaner.settings import CleanerSettings
from cleaner.step import KeysDiffer
from cleaner.verify_pass import PassVerifier, VerificationFailed
from cleaner.work_left import Cost, WorkLeft
from storage.cleaned_segment import CleanedSegment
from storage.errors import SwapRefused
from storage.manifest import SegmentRow

Group = Sequence[tuple[IndexedSegment, Marked]]
"""Neighbouring segments, with what is superseded in each."""


class Rewriting:
    """The rewriting part of one pass; used by the pass's one thread."""

    __slots__ = (
        "_end_offset", "_log", "_meter", "_plan", "_settings", "_survey", "_verifier",
        "batch_filter", "group_reports", "has_committed", "tally",
    )  # fmt: skip

    def __init__(
        self,
        log: CleanableLog,
        plan: CleaningPlan,
        section: DirtySection,
        settings: CleanerSettings,
        *,
        sees_all: bool,
        verifier: PassVerifier,
        meter: PassMeter,
    ) -> None:
        """`sees_all` says whether the windows begin at the log's start and leave no gap."""
        # Constant after construction.
        self._log = log
        self._plan = plan
        self._end_offset = section.end_offset
        self._settings = settings
        self._verifier = verifier
        self._meter = meter
        # State.
        self.batch_filter = _filter(plan, section, settings, stamps_markers=sees_all)
        self._survey = _survey(plan, section, stamps_markers=sees_all)
        self.tally: Counter[str] = Counter()
        """Groups, segments and bytes, as `PassReport` names them."""
        self.group_reports: list[GroupReport] = []
        self.has_committed = False
        """Whether the clean offset went with a swap."""

    def run(self, window: Group, *, is_last: bool, later_bytes: int = 0) -> None:
        """Rewrite a window; the last one's last swap takes the clean offset with it.

        Args:
            later_bytes: what may have to be read of later windows.
        """
        works = self._works(window)
        groups = group_segments(works, group_bounds(self._plan))
        left = self._work_left(window, works, groups, later_bytes)
        leaders = {rows[0]: len(rows) for rows in groups}
        at = 0
        while at < len(window):
            count = leaders.get(window[at][0].row, 0)
            if count:
                group = window[at : at + count]
                self.rewrite(group, takes_offset=is_last and group[0][0].row is groups[-1][0])
                left.done([segment.row for segment, _ in group])
            else:
                self._pass_over(window[at][0])
            at += max(count, 1)

    def _works(self, window: Group) -> list[Work]:
        """What is to be done; looks at each segment's special rows, so call it once a window."""
        return [
            work_of(self._plan, segment.row, self.findings(segment, its)) for segment, its in window
        ]

    def findings(self, segment: IndexedSegment, its: Marked) -> Findings:
        """What is known of a segment; with transactions ask for each once, in offset order."""
        return Findings(
            totals=segment.totals,
            superseded=its.superseded,
            changed_batches=self._changed_batches(segment, its),
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

    def _changed_batches(self, segment: IndexedSegment, its: Marked) -> int:
        if not segment.totals.special_rows:
            return 0
        is_due = has_passed(segment.totals.least_delete_horizon_ms, self._plan.now_ms)
        return sum(
            self._survey.look(
                block.data,
                its.marks,
                base_offset=segment.row.base_offset,
                first_entry=block.first_entry,
                horizon_is_due=is_due,
            )
            for block in segment.blocks()
        )

    def _pass_over(self, segment: IndexedSegment) -> None:
        """Leave a segment as it is, and follow its transactions."""
        self.tally["segments_untouched"] += 1
        self.tally["bytes_untouched"] += segment.row.size
        if segment.totals.special_rows:
            for block in segment.blocks():
                self.batch_filter.skip(block.data, base_offset=segment.row.base_offset)

    def rewrite(self, group: Group, *, takes_offset: bool) -> None:
        """Recopy, verify and swap one group; with `takes_offset` the clean offset goes with it."""
        recopy = Recopy(
            self.batch_filter,
            self._log.new_cleaned_segment,
            has_sidecars=self._settings.keeps_key_sidecars,
            meter=self._meter,
        )
        cleaned = self._recopy(group, recopy)
        self._swap(group, recopy, cleaned, self._end_offset if takes_offset else None)
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

    def _recopy(self, group: Group, recopy: Recopy) -> tuple[CleanedSegment, ...]:
        """Write a group's cleaned segments and verify them; nothing of them stays if that fails."""
        try:
            self._meter.progress.enter(Phase.RECOPY)
            cleaned = recopy.run(group, now_ms=self._plan.stamp_ms)
            self._meter.progress.enter(Phase.VERIFY)
            rows = [segment.row for segment, _ in group]
            marked = sum(its.superseded for _, its in group)
            self._verifier.check_group(self.batch_filter.account, rows, cleaned, marked=marked)
            self._meter.check()
        except KeysDiffer as error:
            recopy.discard()
            for segment, _ in group:
                segment.segment.drop_key_sidecar()
            raise VerificationFailed(f"{error}; its key sidecar is made anew") from error
        except BaseException:
            recopy.discard()
            raise
        return cleaned

    def _swap(
        self,
        group: Group,
        recopy: Recopy,
        cleaned: tuple[CleanedSegment, ...],
        clean_offset: int | None,
    ) -> None:
        sources = [segment.row for segment, _ in group]
        if recopy.is_verbatim and _is_known(sources, cleaned):
            # Readers keep their file, and the page cache what it has of it.
            recopy.discard()
            return
        try:
            self._log.swap(
                sources, cleaned, generation=self._plan.view.generation, clean_offset=clean_offset
            )
        except SwapRefused:
            # Only here is it sure that no manifest lists them; else the next recovery decides.
            recopy.discard()
            raise
        self.has_committed = clean_offset is not None


def work_of(plan: CleaningPlan, row: SegmentRow, findings: Findings) -> Work:
    """What a pass by this plan would do to a segment. Pure."""
    return work_on(
        row,
        findings,
        now_ms=plan.now_ms,
        keeps_unkeyed=plan.view.config.keeps_unkeyed_records,
    )


def group_bounds(plan: CleaningPlan) -> GroupBounds:
    """What groups may not exceed in this plan's log. Pure."""
    config = plan.view.config
    return GroupBounds(
        segment_bytes=config.segment_bytes,
        segment_index_bytes=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
    )


def leave_no_gap(rows: Sequence[SegmentRow], log_start_offset: int) -> bool:
    """Whether segments cover the log from its start to their end."""
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
        delete_retention_ms=plan.delete_horizon_ms - plan.now_ms,
        decompressed_bytes_max=settings.decompressed_bytes_max,
        producer_last_offsets=plan.view.producer_last_offsets,
        producer_marker_epochs=plan.view.producer_marker_epochs,
        index_interval_bytes=plan.view.config.index_interval_bytes,
        segment_bytes_max=_output_bytes_max(plan),
        keeps_unkeyed=plan.view.config.keeps_unkeyed_records,
        transactions=section.transactions,
        stamps_markers=stamps_markers,
        is_verified=settings.verify,
    )


def _output_bytes_max(plan: CleaningPlan) -> int:
    """Where an output goes on in another: groups are made by what was expected to be left.

    No segment is cut up that is larger than they are now: each piece would be an open file.
    """
    return max(plan.view.config.segment_bytes, *(row.size for row in plan.view.sealed_rows), 0)


def _survey(plan: CleaningPlan, section: DirtySection, *, stamps_markers: bool) -> BatchSurvey:
    return BatchSurvey(
        end_offset=section.end_offset,
        producer_last_offsets=plan.view.producer_last_offsets,
        producer_marker_epochs=plan.view.producer_marker_epochs,
        transactions=section.transactions,
        stamps_markers=stamps_markers,
    )


def _is_known(sources: Sequence[SegmentRow], cleaned: Sequence[CleanedSegment]) -> bool:
    """Whether the manifest says all of the group that is known of its output."""
    old, new = sources[0], cleaned[0].row
    same = replace(old, file_version=new.file_version, created_ms=new.created_ms) == new
    return same and len(sources) == len(cleaned) == 1
