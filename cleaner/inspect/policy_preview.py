"""What a change of a topic's settings would remove from a log: counted, not done.

    retention     the segments that `storage/log/retention.py` deletes at once by the new settings
    a pass        over what retention leaves: a rehearsal (`dry_run.py`) of the log as if it had the new
                  settings, and as if its active segment had rolled

So a record that both would remove counts once, as deleted. Each part is left out if the change does not
concern it (`cleaner/rules/policy_change.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from cleaner.inspect.dry_run import DryRun
from cleaner.rules.policy_change import PolicyChange
from cleaner.rules.record_verdict import Verdict
from protocol.wire.numbers import Offset
from storage.formats.log_config import LogConfig
from storage.log.cleaning_view import CleaningView
from storage.log.log import PartitionLog
from storage.log.retention import DeletionReason, Retained, Retention, decide_retention


class Counted(Retained, Protocol):
    """A segment, or its row in the manifest."""

    @property
    def record_count(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleted:
    """The segments that retention would delete at once."""

    log_start_offset: Offset
    """Where the log would then start."""
    by_age: int = 0
    """Segments older than retention.ms."""
    by_size: int = 0
    """Segments above retention.bytes."""
    records: int = 0
    bytes: int = 0

    @property
    def segments(self) -> int:
        return self.by_age + self.by_size


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyPreview:
    """What a change of settings would remove from one log."""

    change: PolicyChange
    records: int
    """Records in the log now."""
    bytes: int
    """The size of its segments now."""
    deleted: Deleted
    dry_run: DryRun | None
    """What a pass would then drop; None if the change does not concern it, or nothing is left."""

    @property
    def unkeyed_dropped(self) -> int:
        """Records without a key that the pass would drop."""
        return self._count(Verdict.DROPPED_UNKEYED)

    @property
    def unkeyed_kept(self) -> int:
        """Records without a key that the pass would keep, besides the log's last one, which stays until
        another follows."""
        untouched = self.dry_run.report.unkeyed_untouched if self.dry_run else 0
        return self._count(Verdict.KEPT_UNKEYED) + untouched

    def _count(self, verdict: Verdict) -> int:
        return self.dry_run.report.records_by_verdict.get(verdict.value, 0) if self.dry_run else 0


def deleted_by(segments: Sequence[Counted], retention: Retention) -> Deleted:
    """Returns what a decision of retention deletes. Pure.

    Segments below the log start, which DeleteRecords has left to retention, do not count: no one can
    read them.
    """
    gone = [
        (segment, reason)
        for segment, reason in zip(segments, retention.reasons, strict=False)
        if reason is not DeletionReason.LOG_START
    ]
    return Deleted(
        log_start_offset=retention.log_start_offset,
        by_age=sum(reason is DeletionReason.TIME for _, reason in gone),
        by_size=sum(reason is DeletionReason.SIZE for _, reason in gone),
        records=sum(segment.record_count for segment, _ in gone),
        bytes=sum(segment.size for segment, _ in gone),
    )


def without_pass(
    log: PartitionLog, config: LogConfig, change: PolicyChange, *, now_ms: int
) -> PolicyPreview:
    """Returns the preview of a change as far as retention is concerned. Call it on the loop's thread."""
    segments = log.segments
    retention = Retention((), log.log_start_offset)
    if change.deletes:
        retention = decide_retention(
            segments,
            config,
            now_ms=now_ms,
            log_start_offset=log.log_start_offset,
            high_watermark=log.high_watermark,
        )
    return PolicyPreview(
        change=change,
        records=sum(segment.record_count for segment in segments),
        bytes=sum(segment.size for segment in segments),
        deleted=deleted_by(segments, retention),
        dry_run=None,
    )


def as_configured(view: CleaningView, config: LogConfig, log_start_offset: Offset) -> CleaningView:
    """Returns the view as if the log had these settings, and retention had moved its start. Pure."""
    start = max(view.log_start_offset, log_start_offset)
    return replace(
        view,
        config=config,
        segments=tuple(each for each in view.segments if each.row.end_offset > start),
        log_start_offset=start,
        clean_offset=max(view.clean_offset, start),
    )
