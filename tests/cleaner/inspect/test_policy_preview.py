"""A preview of changed settings counts what retention and a pass then remove, and changes nothing."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from cleaner.inspect.dry_run import DryMeter, DryRun, dry_run
from cleaner.inspect.policy_preview import (
    Deleted,
    PolicyPreview,
    as_configured,
    deleted_by,
    without_pass,
)
from cleaner.pacing.probe import SilentProbe
from cleaner.pacing.throttle import IoRates, Throttle
from cleaner.rules.cleaning_plan import plan_pass
from cleaner.rules.pick import assess
from cleaner.rules.policy_change import policy_change
from protocol.wire.numbers import Offset
from storage.formats.log_config import LogConfig
from storage.formats.manifest import SegmentRow
from storage.log.retention import DeletionReason, Retention
from tests.harness.compacted_log import CONFIG, CompactedLog, never_stop, records_of
from tests.harness.rehearsal import files_of, segments_of

DELETE = replace(CONFIG, cleanup_policy=("delete",), retention_ms=-1)


def rehearse_as(log: CompactedLog, config: LogConfig, start_offset: Offset) -> DryRun:
    view = as_configured(log.log.cleaning_view(as_if_rolled=True), config, start_offset)
    assessment = assess(view, config, log.now_ms, remainder=log.remainder, requested=True)
    plan = plan_pass(view, assessment, now_ms=log.now_ms, stamp_ms=log.now_ms)
    meter = DryMeter(
        throttle=Throttle(clock=lambda: 0.0),
        probe=SilentProbe(),
        sleep=never_stop,
        is_stale=lambda: log.log.generation != view.generation,
    )
    return dry_run(log.log, plan, log.settings, meter=meter, monotonic=lambda: 0.0, rates=IoRates())


def preview_of(log: CompactedLog, config: LogConfig) -> PolicyPreview:
    """Returns the preview as the pool makes it; nothing may change."""
    before = segments_of(log), files_of(log)
    change = policy_change(log.log.config, config)
    preview = without_pass(log.log, config, change, now_ms=log.now_ms)
    start_offset = preview.deleted.log_start_offset
    if change.compacts and start_offset < log.log.log_end_offset:
        preview = replace(preview, dry_run=rehearse_as(log, config, start_offset))
    assert (segments_of(log), files_of(log)) == before
    return preview


def test_segments_by_age_and_by_size_are_counted_and_those_below_the_log_start_are_not() -> None:
    rows = [
        SegmentRow(
            base_offset=Offset(at),
            file_version=at,
            end_offset=Offset(at + 10),
            size=100 + at,
            record_count=8,
        )
        for at in (0, 10, 20, 30)
    ]
    reasons = (DeletionReason.LOG_START, DeletionReason.SIZE, DeletionReason.TIME)

    deleted = deleted_by(rows, Retention(reasons, Offset(30)))

    assert deleted == Deleted(
        log_start_offset=Offset(30), by_age=1, by_size=1, records=16, bytes=230
    )
    assert deleted.segments == 2


def test_a_topic_that_will_be_compacted_loses_old_values_and_records_without_a_key() -> None:
    log = CompactedLog(DELETE)
    log.append_segment((b"a", b"1"), (None, b"x"))
    log.append((b"a", b"2"))

    dropped = preview_of(log, replace(DELETE, cleanup_policy=("compact",)))
    kept = preview_of(
        log, replace(DELETE, cleanup_policy=("compact",), compaction_unkeyed_records="keep")
    )

    assert (dropped.records, dropped.deleted.segments) == (3, 0)
    assert dropped.dry_run is not None
    assert dropped.dry_run.report.records_by_verdict["dropped_superseded"] == 1
    assert (dropped.unkeyed_dropped, dropped.unkeyed_kept) == (1, 0)
    assert (kept.unkeyed_dropped, kept.unkeyed_kept) == (0, 1)


def test_records_without_a_key_in_segments_that_stay_untouched_are_counted() -> None:
    log = CompactedLog(replace(DELETE, segment_bytes=100))
    log.append_segment((None, b"x" * 80))
    log.append((b"a", b"2"))

    kept = preview_of(
        log,
        replace(log.log.config, cleanup_policy=("compact",), compaction_unkeyed_records="keep"),
    )

    assert kept.dry_run is not None
    assert kept.dry_run.report.segments_untouched > 0
    assert kept.unkeyed_kept == 1


def test_a_change_that_concerns_neither_counts_nothing() -> None:
    log = CompactedLog()
    log.append_segment((b"a", b"1"), (b"a", b"2"))

    preview = preview_of(log, replace(CONFIG, min_cleanable_dirty_ratio=0.9))

    assert preview.dry_run is None
    assert preview.deleted == Deleted(log_start_offset=Offset(0))


def test_retention_that_takes_everything_leaves_nothing_to_compact() -> None:
    log = CompactedLog(DELETE)
    log.append((b"a", b"1"), (b"a", b"2"))
    log.now_ms += 5000

    both = replace(DELETE, cleanup_policy=("compact", "delete"), retention_ms=1000)
    preview = preview_of(log, both)

    assert (preview.deleted.records, preview.deleted.by_age) == (2, 1)
    assert preview.dry_run is None


KEYS = st.sampled_from([b"a", b"b", None])
POLICIES = st.sampled_from([("delete",), ("compact",), ("compact", "delete")])
SETTINGS_OF = st.fixed_dictionaries(
    {
        "cleanup_policy": POLICIES,
        "retention_ms": st.sampled_from([-1, 0, 1500]),
        "retention_bytes": st.sampled_from([-1, 150, 300]),
        "compaction_unkeyed_records": st.sampled_from(["drop", "keep"]),
        "compaction_versions": st.sampled_from([1, 2]),
    }
)


@settings(max_examples=60, deadline=None)
@given(
    before=SETTINGS_OF,
    after=SETTINGS_OF,
    segments=st.lists(st.lists(KEYS, min_size=1, max_size=4), min_size=1, max_size=5),
    rolls_last=st.booleans(),
    is_cleaned=st.booleans(),
)
def test_what_is_foretold_then_happens(
    before: dict[str, object],
    after: dict[str, object],
    segments: list[list[bytes | None]],
    rolls_last: bool,
    is_cleaned: bool,
) -> None:
    log = CompactedLog(replace(CONFIG, **before))  # type: ignore[arg-type]
    for number, keys in enumerate(segments):
        for key in keys:
            log.append((key, b"%d" % number))
        log.now_ms += 1000
        if rolls_last or number < len(segments) - 1:
            log.roll()
    if is_cleaned and log.log.config.is_compacted:
        log.clean()
    config = replace(CONFIG, **after)  # type: ignore[arg-type]
    preview = preview_of(log, config)
    change = preview.change
    count = len(records_of(log.log))

    log.log.update_config(config)
    if change.deletes:
        log.log.retention_is_due(log.now_ms)
        log.log.retain(log.now_ms)
        assert log.log.log_start_offset == preview.deleted.log_start_offset
        assert count - len(records_of(log.log)) == preview.deleted.records
    if change.compacts and preview.dry_run is not None:
        done = log.clean()
        predicted = preview.dry_run.report
        assert done.records_by_verdict == predicted.records_by_verdict
        assert (done.bytes_before, done.bytes_after) == (
            predicted.bytes_before,
            predicted.bytes_after,
        )
        left = records_of(log.log)
        dropped = done.records_before - done.records_after
        assert len(left) == count - preview.deleted.records - dropped
        unkeyed = sum(record.key is None for record in left)
        # The last record of a log stays until another one follows, also a superseded one.
        tails = done.records_by_verdict["kept_tail"] if unkeyed and left[-1].key is None else 0
        assert unkeyed == preview.unkeyed_kept + tails
