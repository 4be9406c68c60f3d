"""Turns the cleaner's state, jobs and reports into JSON values for the HTTP routes. Pure.

Sizes are bytes, times are seconds or ms as their names say, and null stands for "no limit" and for
"not known".
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from cleaner.explain.situation import Explanation
from cleaner.inspect.dry_run import DryRun
from cleaner.inspect.key_search import KeyHistory, KeyRecord
from cleaner.inspect.log_digest import LogDigest
from cleaner.inspect.policy_preview import PolicyPreview
from cleaner.pacing.latency_guard import GuardState
from cleaner.pacing.progress import ProgressSnapshot
from cleaner.pacing.quarantine import Quarantined
from cleaner.pool.status import PoolStatus, RunningStatus
from cleaner.rules.expiry import NEVER
from cleaner.rules.expiry_report import ExpiryFacts
from cleaner.rules.fence import Fence
from cleaner.rules.latest import NO_VERSION
from cleaner.rules.reclaimable import Reclaimable, total_error
from cleaner.rules.report import Counts, GroupReport, PassReport, sum_counts
from cleaner.rules.tombstone_debt import TombstoneDebt
from cleaner.rules.urgency import Candidate
from server.admin.compaction_jobs import Job, Part
from server.runtime.sliced_json import Json, Rows
from storage.formats.config_property import LONG_MAX
from storage.formats.manifest import SegmentRow
from storage.formats.topic_partition import TopicPartition

DROPPED_PREFIX = "dropped_"
FENCES_LISTED_MAX = 20
"""The report of a pass lists so many damaged segments."""


def job_json(job: Job) -> Json:
    """Returns a job and its parts, which are built when they are read."""
    states = {part.state.value for part in job.parts}
    return {
        "id": job.id,
        "kind": job.kind,
        "url": f"/v1/compaction/jobs/{job.id}",
        "is_over": job.is_over,
        "is_done": states <= {"done"},
        "partitions": Rows(part_json, job.parts),
    }


def part_json(part: Part) -> Json:
    """Returns a part of a job, with its outcome; counts of keys are shown by their own route."""
    outcome = part.outcome
    return {
        **partition_json(part.topic_partition),
        "state": part.state.value,
        "progress": progress_json(part.running.progress.snapshot()) if part.running else None,
        "error": part.error,
        "report": report_json(outcome) if isinstance(outcome, PassReport) else None,
        "pass_id": outcome.pass_id if isinstance(outcome, PassReport) else None,
        "plan": plan_json(outcome) if isinstance(outcome, DryRun) else None,
        "preview": preview_json(outcome) if isinstance(outcome, PolicyPreview) else None,
        "key": key_json(outcome) if isinstance(outcome, KeyHistory) else None,
        "digest": digest_json(outcome) if isinstance(outcome, LogDigest) else None,
    }


def partition_json(partition: TopicPartition) -> Json:
    return {"topic": partition.topic, "partition": partition.partition}


def progress_json(progress: ProgressSnapshot) -> Json:
    return {
        "phase": progress.phase.value,
        "bytes_done": progress.bytes_done,
        "bytes_planned": progress.bytes_planned,
        "seconds": round(progress.seconds, 3),
        "throttled_seconds": round(progress.throttled_seconds, 3),
        "stalled_seconds": round(progress.stalled_seconds, 3),
        "eta_seconds": None if progress.eta_seconds is None else round(progress.eta_seconds, 3),
    }


def report_json(report: PassReport) -> Json:
    """Returns a pass's report without its groups."""
    return {
        "topic": report.topic,
        "partition": report.partition,
        "reason": report.reason,
        "start_offset": report.start_offset,
        "end_offset": report.end_offset,
        "planned_end_offset": report.planned_end_offset,
        "log_end_offset": report.log_end_offset,
        "bytes_read": report.bytes_read,
        "bytes_written": report.bytes_written,
        "bytes_before": report.bytes_before,
        "bytes_after": report.bytes_after,
        "bytes_untouched": report.bytes_untouched,
        "records_before": report.records_before,
        "records_after": report.records_after,
        "records_by_verdict": dict(report.records_by_verdict),
        "keys_mapped": report.keys_mapped,
        "keys_capacity": report.keys_capacity,
        "parts": report.parts,
        "sidecars_built": report.sidecars_built,
        "groups": report.groups,
        "segments_before": report.segments_before,
        "segments_after": report.segments_after,
        "segments_untouched": report.segments_untouched,
        "batches_unread": report.batches_unread,
        "keys_compared": report.keys_compared,
        "dirty_ratio": round(report.dirty_ratio, 6),
        "hold_offset": report.hold_offset if report.held_by else None,
        "held_by": report.held_by or None,
        "fences_count": len(report.fences),
        "fences": fences_json(report),
        "reached_offset": report.reached_offset,
        "strategy": report.strategy,
        "history": report.history,
        "sweeps": report.sweeps,
        "history_due_ms": report.history_due_ms if report.history_due_ms < LONG_MAX else None,
        "segments_spared": report.segments_spared,
        "records_spared": report.records_spared,
        "spared_due_ms": report.spared_due_ms if report.spared_due_ms < LONG_MAX else None,
        "outranked": report.outranked,
        "outranked_examples": [
            {"offset": each.offset, "outranked_by": each.by} for each in report.outranked_examples
        ],
        "undo_number": report.undo_number,
        "unkeyed_moved": report.unkeyed_moved,
        "unkeyed_topic": report.unkeyed_topic or None,
        "unkeyed_kept_because": report.unkeyed_kept_because or None,
        "seconds": round(report.seconds, 3),
        "throttled_seconds": round(report.throttled_seconds, 3),
        "verify_seconds": round(report.verify_seconds, 3),
        "is_verified": report.is_verified,
    }


def fences_json(report: PassReport) -> list[Json]:
    """Returns the first damaged segments that a pass has cleaned around."""
    return [fence_json(fence) for fence in report.fences[:FENCES_LISTED_MAX]]


def fence_json(fence: Fence) -> Json:
    """Returns a damaged segment that a pass has cleaned around."""
    return {
        "base_offset": fence.base_offset,
        "end_offset": fence.end_offset,
        "file_version": fence.file_version,
        "bytes": fence.size,
        "reason": fence.reason,
        "since_ms": fence.since_ms,
    }


def cancelled_json(running: Iterable[RunningStatus], others: Iterable[tuple[Job, Part]]) -> Json:
    """Returns the tasks that were stopped: those of the pool, and other parts of jobs."""
    stopped: list[Json] = [
        {
            **partition_json(each.topic_partition),
            "task": each.task.value,
            "reason": each.reason,
            "was_running": True,
        }
        for each in running
    ]
    stopped += [
        {
            **partition_json(part.topic_partition),
            "task": job.kind,
            "reason": "REQUESTED",
            "was_running": part.running is not None,
        }
        for job, part in others
    ]
    return {"cancelled": stopped}


def plan_json(dry_run: DryRun) -> Json:
    """Returns what a pass would do: its report, and which records of each segment it drops and why."""
    groups = dry_run.report.group_reports
    return {
        "report": report_json(dry_run.report),
        "rolls_active_segment": dry_run.rolls,
        "map_bytes_max": dry_run.map_bytes,
        "dies": _dropped(group.by_verdict for group in groups),
        "groups": [_group_json(group, dry_run) for group in groups],
        "untouched_segments": [_row_json(row) for row in dry_run.untouched],
    }


def preview_json(preview: PolicyPreview) -> Json:
    """Returns what a change of settings would remove: by retention, then by a pass over the rest."""
    deleted, dry_run = preview.deleted, preview.dry_run
    return {
        "changes_deletion": preview.change.deletes,
        "changes_compaction": preview.change.compacts,
        "notes": list(preview.change.notes),
        "warnings": [str(harm) for harm in preview.change.harms],
        "records": preview.records,
        "bytes": preview.bytes,
        "deletion": {
            "segments": deleted.segments,
            "segments_by_age": deleted.by_age,
            "segments_by_size": deleted.by_size,
            "records": deleted.records,
            "bytes": deleted.bytes,
            "log_start_offset": deleted.log_start_offset,
        },
        "compaction": dry_run
        and {
            "records_dropped": dry_run.report.records_before - dry_run.report.records_after,
            "bytes_freed": dry_run.report.bytes_before - dry_run.report.bytes_after,
            "unkeyed_dropped": preview.unkeyed_dropped,
            "unkeyed_kept": preview.unkeyed_kept,
            "plan": plan_json(dry_run),
        },
    }


def _dropped(counts: Iterable[Counts]) -> Json:
    """Returns the dropped records and their uncompressed bytes, by the reason for the drop."""
    return {
        verdict.value.removeprefix(DROPPED_PREFIX): {
            "records": count.records,
            "record_bytes": count.bytes,
        }
        for verdict, count in sum_counts(counts).items()
        if not verdict.is_kept
    }


def _group_json(group: GroupReport, dry_run: DryRun) -> Json:
    return {
        "is_replaced": group in dry_run.replaced,
        "sources": [
            {**_row_json(row), "dies": _dropped([counts])}
            for row, counts in zip(group.sources, group.by_source, strict=True)
        ],
        "outputs": [_row_json(row) for row in group.outputs],
        "bytes_before": sum(row.size for row in group.sources),
        "bytes_after": sum(row.size for row in group.outputs),
        "dies": _dropped(group.by_source),
    }


def _row_json(row: SegmentRow) -> Json:
    return {
        "base_offset": row.base_offset,
        "end_offset": row.end_offset,
        "bytes": row.size,
        "records": row.record_count,
    }


def key_json(history: KeyHistory) -> Json:
    """Returns the records of a key on disk, and what the cleaner will do with them."""
    return {
        "key_hex": history.key.hex(),
        "is_gone": history.is_gone,
        "records_count": history.count,
        "records": [_key_record_json(record) for record in history.records],
        "tombstone_offset": history.tombstone_offset,
        "tombstone_goes_at_ms": history.tombstone_goes_at_ms,
        "fate": list(history.fate),
        "departures": list(history.departures),
    }


def digest_json(digest: LogDigest) -> Json:
    """Returns the digest of a partition's keys, as 32 hexadecimal digits, and what it covers."""
    return {
        "start_offset": digest.start_offset,
        "end_offset": digest.end_offset,
        "clean_offset": digest.clean_offset,
        "keys": digest.keys,
        "digest": f"{digest.digest:032x}",
        "strategy": str(digest.strategy),
    }


def _key_record_json(record: KeyRecord) -> Json:
    hit = record.hit
    return {
        "offset": hit.offset,
        "timestamp_ms": hit.timestamp,
        "segment_base_offset": record.segment_base_offset,
        "segment_file_version": record.segment_file_version,
        "record_bytes": hit.size_bytes,
        "is_tombstone": hit.value_bytes is None,
        "value_bytes": hit.value_bytes,
        "superseded_by": record.superseded_by,
        "is_older_value": record.is_older_value,
        "version": None if hit.version == NO_VERSION else hit.version,
        "transaction": hit.decision.value if hit.decision else None,
        "delete_horizon_ms": hit.delete_horizon_ms,
    }


def status_json(
    status: PoolStatus,
    queue: Sequence[Candidate],
    paused: Json,
    guard: Json,
    *,
    kept_bytes: int,
    now: float,
    rows_max: int,
) -> Json:
    """Returns a snapshot of the pool.

    Args:
        kept_bytes: of replaced segments that are kept for undos of passes.
        now: monotonic seconds of the clock that `retry_at` refers to.
        rows_max: at most this many entries of the queue, and of the last passes, are listed.
    """
    expiries = sorted(status.expiries.items(), key=lambda each: str(each[0]))
    last = sorted(status.last_reports.values(), key=lambda each: (each.topic, each.partition))
    return {
        "threads": status.threads,
        "throttle": _throttle_json(status) | {"latency_guard": guard},
        "running": [_running_json(running) for running in status.running],
        "queue_length": len(queue),
        "queue": [_waiting_json(candidate) for candidate in queue[:rows_max]],
        "quarantined": [quarantined_json(entry, now=now) for entry in status.quarantined],
        "fenced": [*islice(_fenced(status), rows_max)],
        "paused": paused,
        "kept_bytes": kept_bytes,
        "reclaimable": all_reclaimable_json(status.reclaimable, rows_max=rows_max),
        "expiries_count": len(status.expiries),
        "expiries": [
            partition_json(partition) | expiry_json(facts)
            for partition, facts in expiries[:rows_max]
        ],
        "last_passes_count": len(last),
        "last_passes": [report_json(report) for report in last[:rows_max]],
    }


def _fenced(status: PoolStatus) -> Iterator[Json]:
    """Yields the damaged segments that the last passes have cleaned around."""
    for partition, fences in sorted(status.fenced.items(), key=lambda item: str(item[0])):
        for fence in fences:
            yield {**partition_json(partition), **fence_json(fence)}


def _throttle_json(status: PoolStatus) -> Json:
    return {
        "total_bytes_per_second": _finite(status.rates.total),
        "read_bytes_per_second": _finite(status.rates.read),
        "write_bytes_per_second": _finite(status.rates.write),
        "is_lifted_for_disk_pressure": status.is_lifted,
    }


def guard_json(state: GuardState, *, is_enabled: bool) -> Json:
    """Returns the rate that the latency guard allows, and the quiet p99 that it compares with."""
    return {
        "is_enabled": is_enabled,
        "bytes_per_second": _finite(state.rate),
        "quiet_p99_seconds": state.quiet_p99,
    }


def _finite(rate: float) -> float | None:
    return None if math.isinf(rate) else rate


def _running_json(running: RunningStatus) -> Json:
    return {
        **partition_json(running.topic_partition),
        "task": running.task.value,
        "reason": running.reason,
        "progress": progress_json(running.progress),
    }


def _waiting_json(candidate: Candidate) -> Json:
    assessment = candidate.assessment
    assert assessment.reason is not None
    return {
        **partition_json(candidate.topic_partition),
        "reason": assessment.reason.name,
        "dirty_ratio": round(assessment.dirty_ratio, 6),
        "dirty_bytes": assessment.cleanable_bytes,
        "reclaimable": reclaimable_json(candidate.reclaimable),
        "waited_ms": candidate.waited_ms,
    }


def reclaimable_json(found: Reclaimable | None) -> Json | None:
    """Returns how many bytes a pass would free, with the standard error; null if it is not known."""
    if found is None:
        return None
    return {
        "bytes": found.bytes,
        "bytes_error": found.bytes_error,
        "share": round(found.share, 6),
        "share_error": round(found.share_error, 6),
        "counted_bytes": found.counted_bytes,
        "end_offset": found.end_offset,
    }


def all_reclaimable_json(known: Mapping[TopicPartition, Reclaimable], *, rows_max: int) -> Json:
    """Returns the sum over all partitions whose keys were counted, and those with the most to free."""
    largest = heapq.nlargest(rows_max, known.items(), key=lambda each: each[1].bytes)
    return {
        "partitions_count": len(known),
        "bytes": sum(found.bytes for found in known.values()),
        "bytes_error": total_error(found.bytes_error for found in known.values()),
        "partitions": [
            partition_json(partition) | {"reclaimable": reclaimable_json(found)}
            for partition, found in largest
        ],
    }


def debt_json(debt: TombstoneDebt) -> Json:
    """Returns how many tombstones still have to go, their uncompressed bytes, and when they fall due."""
    return {
        "tombstones": debt.tombstones,
        "tombstone_bytes": debt.bytes,
        "first_due_ms": debt.first_due_ms,
        "all_due_ms": debt.all_due_ms,
    }


def quarantined_json(entry: Quarantined, *, now: float) -> Json:
    return {
        **partition_json(entry.topic_partition),
        "reason": entry.reason,
        "failures": entry.failures,
        "retry_in_seconds": round(max(entry.retry_at - now, 0.0), 3),
    }


def expiry_json(facts: ExpiryFacts) -> Json:
    """Returns when the next value of a log expires, as far as it was read, and what its sweeps have done
    since the start."""
    last = facts.totals.last
    return {
        "due_ms": None if facts.due_ms == NEVER else facts.due_ms,
        "sweeps": facts.totals.sweeps,
        "tombstones": facts.totals.tombstones,
        "unreadable": facts.totals.unreadable,
        "last": None
        if last is None
        else {
            "end_offset": last.end_offset,
            "next_expiry_ms": None if last.due_ms == NEVER else last.due_ms,
            "expired": last.expired,
            "tombstones": last.tombstones,
            "deferred": last.deferred,
            "unreadable": last.unreadable,
            "bytes_read": last.bytes_read,
            "seconds": last.seconds,
        },
    }


def explanation_json(
    explanation: Explanation,
    expiry: ExpiryFacts | None = None,
    reclaimable: Reclaimable | None = None,
) -> Json:
    """Returns why a log is not being compacted, the decisive finding first, each with its numbers."""
    return {
        **partition_json(explanation.topic_partition),
        "is_running": explanation.is_running,
        "is_eligible": explanation.is_eligible,
        "text": explanation.text,
        "findings": [
            {
                "obstacle": finding.obstacle.value,
                "text": finding.text,
                "remedy": finding.remedy,
                "numbers": dict(finding.numbers),
            }
            for finding in explanation.findings
        ],
        "expiry": None if expiry is None else expiry_json(expiry),
        "reclaimable": reclaimable_json(reclaimable),
    }
