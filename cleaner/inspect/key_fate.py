"""Sentences that say when the records of a key that are still on disk will go. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from cleaner.rules.expiry import NEVER
from cleaner.rules.hold import Hold
from cleaner.rules.pick import assess
from cleaner.rules.step import Decision, KeyHit
from cleaner.rules.text import count_text, duration_text, moment_text
from storage.formats.compaction_config import MIN_SEGMENT_DEAD_RATIO
from storage.formats.config_property import LONG_MAX
from storage.formats.manifest import UNKNOWN
from storage.log.cleaning_view import CleaningView


class OlderValues(NamedTuple):
    """The records of a key that stay beside its last one."""

    offsets: frozenset[int] = frozenset()
    due_ms: int = LONG_MAX
    """When the first of them may have to go by the clock; LONG_MAX: never."""


NO_OLDER_VALUES = OlderValues()


def fate(
    view: CleaningView,
    hits: Sequence[KeyHit],
    last: KeyHit | None,
    older: OlderValues,
    count: int,
    now_ms: int,
    hold: Hold,
) -> Iterator[str]:
    """Yields sentences about the future of a key's records.

    Args:
        view: the log, `as_if_rolled`.
        hits: the last records of the key, by offset.
        last: the key's current record: it outranks the other hits in no open or aborted transaction.
        older: those that stay beside it.
        count: number of records of the key; more than `hits` if that list was cut.
        hold: which tombstones stay.
    """
    if count == 0:
        yield "no record of this key is on disk: it never existed, or is physically gone"
        return
    if not view.config.is_compacted:
        policy = ",".join(view.config.cleanup_policy) or "empty"
        yield f"cleanup.policy is {policy}: no pass drops any of them"
        return
    undecided = [hit for hit in hits if hit.decision is Decision.OPEN]
    aborted = sum(hit.decision is Decision.ABORTED for hit in hits)
    if last is not None:
        lost = [
            hit
            for hit in hits
            if hit is not last
            and hit.decision in COUNTING_DECISIONS
            and hit.offset not in older.offsets
        ]
        outranked = [hit.offset for hit in lost if hit.offset > last.offset]
        uncompared = count - len(hits)
        if uncompared and view.config.history.keeps_more:
            many = count_text(uncompared, "older record")
            yield f"{many} of the key were not compared, so it is open which of them stay"
            uncompared = 0
        superseded = uncompared + len(lost) - len(outranked)
        if superseded and last.offset < view.clean_offset and view.config.spares_segments:
            yield (
                f"{_records(superseded, 'superseded ')} once {MIN_SEGMENT_DEAD_RATIO}"
                f"={view.config.min_segment_dead_ratio:g} of its segment is superseded, or with the"
                " first pass that rewrites that segment for another reason"
            )
        elif superseded:
            yield (
                f"{_records(superseded, 'superseded ')} with the first pass that reaches offset"
                f" {last.offset}; the log is clean up to {view.clean_offset}"
            )
        if outranked:
            yield (
                f"{_records(len(outranked), 'outranked ')} with the first pass that reaches offset"
                f" {outranked[-1]} and does not end there: by {view.config.strategy}, the record at"
                f" offset {last.offset} is the key's last value"
            )
        if older.offsets:
            yield _fate_of_older(older, str(view.config.history))
        yield from _fate_of_last(view, last, now_ms, hold)
    if undecided:
        producers = ", ".join(
            str(each) for each in sorted({hit.producer_id or 0 for hit in undecided})
        )
        yield (
            f"in the still open transaction of producer {producers}: {len(undecided)};"
            " its end decides about them, and no pass goes beyond its first offset"
        )
    if aborted:
        yield f"{_records(aborted, 'aborted ')} with the next pass that reaches them"


COUNTING_DECISIONS = (None, Decision.COMMITTED)


def _records(count: int, kind: str) -> str:
    return f"1 {kind}record goes" if count == 1 else f"{count} {kind}records go"


def _fate_of_older(older: OlderValues, history: str) -> str:
    count = len(older.offsets)
    verb = "stays" if count == 1 else "stay"
    return (
        f"{count_text(count, 'older value')} {verb} beside its last one: the topic keeps of each key"
        f" {history}"
        + (f"; one may go at {moment_text(older.due_ms)}" if older.due_ms < LONG_MAX else "")
    )


def _fate_of_last(view: CleaningView, last: KeyHit, now_ms: int, hold: Hold) -> Iterator[str]:
    if last.value_bytes is not None:
        yield _fate_of_value(view, last, now_ms)
        return
    name = f"its tombstone, at offset {last.offset},"
    retention = view.config.delete_retention_ms
    setting = f"delete.retention.ms={retention} ({duration_text(retention / 1000)})"
    if last.offset == view.log_end_offset - 1:
        yield f"{name} is the log's last record, and stays until something follows it"
    if last.offset >= hold.offset:
        yield f"{name} stays: {hold.by} holds tombstones from offset {hold.offset} on"
    if last.delete_horizon_ms is None:
        yield (
            f"{name} waits for a first pass over it, after which it stays for {setting} more; the first"
            f" pass after that drops it; the log is clean up to {view.clean_offset}"
        )
        yield from _reasons_not_reached(view, last.offset, now_ms)
    elif last.delete_horizon_ms > now_ms:
        yield (
            f"{name} goes with the first pass after {moment_text(last.delete_horizon_ms)}, which runs"
            f" even if the log is clean; the first pass over it was {setting} before that"
        )
    elif last.offset < hold.offset and view.config.strategy.has_versions:
        yield (
            f"{name} expired at {moment_text(last.delete_horizon_ms)}: a pass drops it that finds"
            " nothing else of the key and covers all records appended before that moment"
        )
    elif last.offset < hold.offset:
        yield f"{name} expired at {moment_text(last.delete_horizon_ms)}: the next pass drops it"


def _fate_of_value(view: CleaningView, last: KeyHit, now_ms: int) -> str:
    place = f"its last value, at offset {last.offset}"
    if not view.config.expires_values or last.expires_ms == NEVER:
        return f"{place}, stays"
    moment = moment_text(last.expires_ms)
    if last.expires_ms > now_ms:
        return f"{place}, expires at {moment}: the broker then appends a tombstone for the key"
    return f"{place}, expired at {moment}: the next sweep appends a tombstone for the key"


def _reasons_not_reached(view: CleaningView, offset: int, now_ms: int) -> Iterator[str]:
    """Yields what must happen before a pass may reach an offset."""
    bounds = assess(view, view.config, now_ms, requested=True).bounds
    if offset >= bounds.first_uncleanable_offset:
        yield (
            f"no pass may reach offset {offset} now: {bounds.limited_by.value};"
            f" see kompakt compact explain {view.topic_partition}"
        )
    elif view.active_row.file_version == UNKNOWN and offset >= view.segments[-1].row.base_offset:
        yield (
            f"offset {offset} is in the active segment, which has to roll first:"
            f" kompakt compact now {view.topic_partition} does both"
        )
