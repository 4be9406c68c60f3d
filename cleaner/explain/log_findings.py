"""Findings about the obstacles in a log itself. Pure; `cleaner/explain/explain.py` ranks them."""

from __future__ import annotations

from collections.abc import Iterator

from cleaner.explain.situation import Finding, Obstacle, Situation
from cleaner.rules.pick import Blocker
from cleaner.rules.text import count_text, duration_text, moment_text, size_text
from storage.formats.compaction_window import opens_ms
from storage.formats.config_property import LONG_MAX


def limit(situation: Situation, limited_by: Blocker) -> Finding:
    """Returns the finding for the limit that sets the first uncleanable offset."""
    bounds = situation.assessment.bounds
    config, end = situation.config, situation.log_end_offset
    what = f"offsets [{bounds.first_uncleanable_offset}, {end})"
    if limited_by is Blocker.MIN_LAG:
        until_ms = situation.old_enough_ms
        return Finding(
            obstacle=Obstacle.MIN_LAG,
            text=f"{what} are younger than min.compaction.lag.ms={config.min_compaction_lag_ms}"
            + (f", the first of them until {moment_text(until_ms)}" if until_ms < LONG_MAX else ""),
            remedy="lower min.compaction.lag.ms, or wait",
            numbers={
                "min.compaction.lag.ms": config.min_compaction_lag_ms,
                "until_ms": until_ms if until_ms < LONG_MAX else None,
            },
        )
    if limited_by is Blocker.MIN_LAG_BYTES:
        return Finding(
            obstacle=Obstacle.MIN_LAG_BYTES,
            text=f"{what} lie within min.compaction.lag.bytes={config.min_compaction_lag_bytes}"
            " of the log's end",
            remedy="lower min.compaction.lag.bytes",
            numbers={"min.compaction.lag.bytes": config.min_compaction_lag_bytes},
        )
    if limited_by is Blocker.ACTIVE_SEGMENT:
        return _active_segment(situation)
    if limited_by is Blocker.LAST_STABLE_OFFSET:
        return Finding(
            obstacle=Obstacle.OPEN_TRANSACTION,
            text=f"{what} may belong to a transaction that is still open",
            remedy="wait until it ends; if it hangs: kompakt transactions find-hanging",
        )
    return Finding(
        obstacle=Obstacle.HIGH_WATERMARK,
        text=f"{what} are above the high watermark {situation.high_watermark}: not durable yet",
        remedy="wait for the disk; see flush.on.acks.all",
        numbers={"high_watermark": situation.high_watermark},
    )


def _active_segment(situation: Situation) -> Finding:
    config, active = situation.config, situation.active_bytes
    by_time = situation.rolls_at_ms
    rolls = f"it rolls at segment.bytes={config.segment_bytes}" + (
        f", at the latest at {moment_text(by_time)}" if by_time < LONG_MAX else ""
    )
    return Finding(
        obstacle=Obstacle.ACTIVE_SEGMENT,
        text=f"offsets [{situation.active_base_offset}, {situation.log_end_offset})"
        f" ({size_text(active)}) are in the active segment: {rolls}",
        remedy=f"kompakt compact now {situation.topic_partition} rolls it;"
        " or lower segment.ms, segment.bytes or compaction.idle.roll.ms",
        numbers={
            "active_base_offset": situation.active_base_offset,
            "active_bytes": active,
            "segment.bytes": config.segment_bytes,
            "rolls_at_ms": by_time if by_time < LONG_MAX else None,
        },
    )


def ratio(situation: Situation, dirty: int) -> Finding:
    """Returns the finding that the log, with `dirty` dirty bytes, is not dirty enough."""
    dirty_ratio = _dirty_ratio(situation, dirty)
    threshold = situation.config.min_cleanable_dirty_ratio
    deadline_ms = situation.assessment.deadline_ms
    clean = situation.assessment.clean_bytes
    return Finding(
        obstacle=Obstacle.RATIO,
        text=f"the dirty ratio {dirty_ratio:.2f} is not above min.cleanable.dirty.ratio={threshold:g}:"
        f" {size_text(dirty)} dirty, {size_text(clean)} clean"
        + (
            f"; max.compaction.lag.ms makes it eligible at {moment_text(deadline_ms)}"
            if deadline_ms < LONG_MAX
            else ""
        ),
        remedy=f"set min.cleanable.dirty.ratio below {dirty_ratio:.2f}, set max.compaction.lag.ms,"
        f" or: kompakt compact now {situation.topic_partition}",
        numbers={
            "dirty_ratio": round(dirty_ratio, 6),
            "min.cleanable.dirty.ratio": threshold,
            "dirty_bytes": dirty,
            "clean_bytes": clean,
            "deadline_ms": deadline_ms if deadline_ms < LONG_MAX else None,
        },
    )


def ratio_after_roll(situation: Situation) -> Iterator[Finding]:
    """Yields the ratio finding if the log would not be dirty enough with its active segment either."""
    threshold = situation.config.min_cleanable_dirty_ratio
    if _dirty_ratio(situation, situation.active_bytes) <= threshold:
        yield ratio(situation, situation.active_bytes)


def _dirty_ratio(situation: Situation, dirty: int) -> float:
    return dirty / (situation.assessment.clean_bytes + dirty) if dirty else 0.0


def open_transaction(situation: Situation) -> Finding:
    """Returns the finding that a producer has not ended its transaction."""
    first = situation.transactions[0]
    age = max(situation.now_ms - first.since_ms, 0) / 1000
    idle = max(situation.now_ms - first.last_append_ms, 0) / 1000
    return Finding(
        obstacle=Obstacle.OPEN_TRANSACTION,
        text=f"pinned by producer {first.producer_id} (epoch {first.producer_epoch}), whose transaction"
        f" has been open since offset {first.first_offset}, for {duration_text(age)};"
        f" it last wrote {duration_text(idle)} ago",
        remedy="let its producer end it, or: kompakt transactions abort --partition"
        f" {situation.topic_partition} --start-offset {first.first_offset}, which names its owner;"
        " until then nothing after it can be cleaned",
        numbers={
            "producer_id": first.producer_id,
            "producer_epoch": first.producer_epoch,
            "first_offset": first.first_offset,
            "since_ms": first.since_ms,
            "open_transactions": len(situation.transactions),
        },
    )


def window(situation: Situation) -> Finding:
    """Returns the finding that the topic's passes wait for their window."""
    config = situation.config
    at_ms = opens_ms(config.windows, situation.now_ms)
    return Finding(
        obstacle=Obstacle.WINDOW,
        text=f"passes run by themselves only in compaction.window={config.compaction_window} (UTC);"
        f" the next one begins at {moment_text(at_ms)}",
        remedy=f"wait, change compaction.window, or: kompakt compact now {situation.topic_partition}",
        numbers={"opens_ms": at_ms},
    )


def nothing_dirty(situation: Situation) -> Finding:
    """Returns the finding that every record was cleaned."""
    horizon_ms = situation.assessment.horizon_ms
    due_ms = situation.assessment.history_due_ms
    return Finding(
        obstacle=Obstacle.NOTHING_DIRTY,
        text=f"every record below offset {situation.log_end_offset} was cleaned"
        + (
            f"; tombstones or markers expire from {moment_text(horizon_ms)} on"
            if horizon_ms < LONG_MAX
            else ""
        )
        + (f"; older values may go from {moment_text(due_ms)} on" if due_ms < LONG_MAX else ""),
        remedy="no action needed; delete.retention.ms sets how long tombstones stay",
        numbers={
            "horizon_ms": horizon_ms if horizon_ms < LONG_MAX else None,
            "history_due_ms": due_ms if due_ms < LONG_MAX else None,
        },
    )


def held_tombstones(situation: Situation) -> Finding:
    """Returns the finding that tombstones stay because a group has not read them yet."""
    hold = situation.assessment.hold
    return Finding(
        obstacle=Obstacle.HELD,
        text=f"tombstones and markers from offset {hold.offset} on stay: {hold.by} holds them",
        remedy="let it read on; see compaction.hold.groups and compaction.hold.max.ms",
        numbers={"hold_offset": hold.offset, "log_end_offset": situation.log_end_offset},
    )


def fenced(situation: Situation) -> Finding:
    """Returns the finding that damaged segments stay as they are, and what they hold back."""
    fences, partition = situation.assessment.known_fences, situation.topic_partition
    first, last = fences[0], fences[-1]
    segments = count_text(len(fences), "damaged segment")
    has_versions = situation.config.strategy.has_versions
    held = "all tombstones" if has_versions else f"tombstones from offset {first.base_offset} on"
    return Finding(
        obstacle=Obstacle.FENCED,
        text=f"{segments} ({size_text(sum(fence.size for fence in fences))}) known since"
        f" {moment_text(min(fence.since_ms for fence in fences))} cannot be cleaned, the first with"
        f" offsets [{first.base_offset}, {first.end_offset}): {first.reason}; until that is repaired,"
        f" {held} stay",
        remedy="restore the segment's file from a copy of this directory, then: kompakt compact now"
        f" {partition}; or give up its records and all before it: {_give_up(situation)}",
        numbers={
            "segments": len(fences),
            "bytes": sum(fence.size for fence in fences),
            "first_offset": first.base_offset,
            "end_offset": last.end_offset,
            "since_ms": min(fence.since_ms for fence in fences),
        },
    )


def _give_up(situation: Situation) -> str:
    """Returns how an operator removes what lies in the fences and below them."""
    partition, last = situation.topic_partition, situation.assessment.known_fences[-1]
    change = (
        ""
        if situation.config.is_deleted
        else "set cleanup.policy=compact,delete with retention.ms=-1, then "
    )
    return (
        f"{change}kompakt topics delete-records {partition.topic} --partition {partition.partition}"
        f" --before {last.end_offset}"
    )
