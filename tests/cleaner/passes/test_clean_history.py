"""Passes over a log that keeps older values: what they drop, when they run, and what they leave."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cleaner.inspect.key_search import find_key
from cleaner.inspect.verify_keys import verify_keys
from cleaner.rules.cleaning_plan import remainder_of
from cleaner.rules.pick import Reason
from protocol.records.record_batch import Record, build_batch
from protocol.wire.numbers import Offset
from storage.files.paths import KEYS, LOG
from storage.formats.config_property import LONG_MAX
from storage.formats.key_sidecar import KeySidecar
from storage.formats.log_config import LogConfig
from tests.harness.compacted_log import (
    CONFIG,
    DIRECTORY,
    SETTINGS,
    CompactedLog,
    identity,
    meter_of,
)
from tests.harness.damage import flip
from tests.harness.log_builder import valid
from tests.harness.table_digest import digest_of
from tests.harness.transactional_producer import TransactionalProducer

HOUR_MS = 3_600_000
THREE_VERSIONS = replace(CONFIG, compaction_versions=3)
THINNED = replace(CONFIG, compaction_thinning="all for 1h, one per 1h for 1d")
AT_NINE_MS = 20_000 * 24 * HOUR_MS + 9 * HOUR_MS


def thinned_log(config: LogConfig = THINNED) -> CompactedLog:
    """Returns an empty log at nine in the morning."""
    log = CompactedLog(config)
    log.now_ms = AT_NINE_MS
    return log


def append(log: CompactedLog, key: bytes, value: bytes | None, *, ago_ms: int = 0) -> None:
    record = Record(offset=0, timestamp=log.now_ms - ago_ms, key=key, value=value)
    log.append_batch(valid(build_batch([record])))


def offsets(log: CompactedLog) -> list[int]:
    return [offset for offset, _, _ in log.pairs()]


def test_the_last_values_of_each_key_stay() -> None:
    log = CompactedLog(THREE_VERSIONS)
    for number in range(5):
        append(log, b"a", b"%d" % number)
    append(log, b"b", b"0")

    report = log.clean()

    assert offsets(log) == [2, 3, 4, 5]
    assert report.history == "the last 3 values"
    append(log, b"a", b"5")
    log.clean()
    assert offsets(log) == [3, 4, 5, 6]


def test_older_values_do_not_change_the_digest() -> None:
    log = CompactedLog(THREE_VERSIONS)
    for number in range(5):
        append(log, b"a", b"%d" % number)
    log.roll()
    before = digest_of(log)

    log.clean()

    assert digest_of(log).digest == before.digest
    assert digest_of(log).keys == 1


def test_a_deletion_ends_the_history_at_once_and_nothing_comes_back_when_it_goes() -> None:
    log = CompactedLog(THREE_VERSIONS)
    append(log, b"a", b"0")
    append(log, b"a", b"1")
    append(log, b"x", b"0")
    log.clean()
    append(log, b"a", None)
    append(log, b"x", b"1")

    log.clean()
    assert offsets(log) == [2, 3, 4]
    append(log, b"a", b"2")
    append(log, b"x", b"2")
    log.clean()
    assert offsets(log) == [2, 3, 4, 5, 6]

    log.now_ms += CONFIG.delete_retention_ms
    assert log.clean_until_idle() == 1
    assert offsets(log) == [2, 4, 5, 6]


def test_values_that_have_grown_old_go_without_new_records_and_no_pass_runs_before() -> None:
    log = thinned_log()
    for minute in range(3):
        append(log, b"a", b"%d" % minute, ago_ms=(50 - minute) * 60_000)
    append(log, b"b", b"0")
    report = log.clean()
    assert offsets(log) == [0, 1, 2, 3]
    # The hour before nine is wholly older than an hour at ten.
    assert report.history_due_ms == AT_NINE_MS + HOUR_MS

    log.now_ms = AT_NINE_MS + HOUR_MS - 1
    assert log.assess().reason is None
    assert log.assess().wake_ms == AT_NINE_MS + HOUR_MS
    log.now_ms += 1
    assert log.assess().reason is Reason.HISTORY_DUE
    assert log.clean_until_idle() == 1
    assert offsets(log) == [2, 3]


def test_a_log_in_which_no_value_can_go_any_more_is_never_due() -> None:
    log = thinned_log()
    append(log, b"a", b"0", ago_ms=30 * HOUR_MS)
    append(log, b"a", b"1", ago_ms=2 * HOUR_MS)
    append(log, b"b", b"0")
    log.clean()

    log.now_ms += 2 * 24 * HOUR_MS
    log.clean_until_idle()

    assert offsets(log) == [1, 2]
    assert log.assess().history_due_ms == LONG_MAX


def test_the_value_with_which_the_history_begins_stays() -> None:
    log = thinned_log()
    for days in (5, 4, 3):
        append(log, b"a", b"%d" % days, ago_ms=days * 24 * HOUR_MS)
    append(log, b"a", b"now")

    log.clean()

    assert offsets(log) == [2, 3]


def test_a_lower_number_applies_to_keys_without_new_records_too() -> None:
    log = CompactedLog(THREE_VERSIONS)
    for number in range(3):
        append(log, b"a", b"%d" % number)
    append(log, b"b", b"0")
    log.clean()
    assert log.assess().reason is None

    log.log.update_config(replace(THREE_VERSIONS, compaction_versions=2))

    assert log.assess().reason is Reason.HISTORY_DUE
    assert log.clean_until_idle() == 1
    assert offsets(log) == [1, 2, 3]


def test_without_a_history_the_next_pass_leaves_one_value_a_key_and_the_log_forgets_it() -> None:
    log = CompactedLog(THREE_VERSIONS)
    for number in range(3):
        append(log, b"a", b"%d" % number)
    append(log, b"b", b"0")
    log.clean()
    assert log.log.has_history
    (note,) = verify_keys(log.fs, identity(), map_bytes=1 << 20)
    assert "it keeps older values" in note.text

    log.log.update_config(CONFIG)
    log.reopen(is_clean=True)
    assert log.log.has_history
    assert log.clean_until_idle() == 1

    assert offsets(log) == [2, 3]
    assert not log.log.has_history
    log.reopen(is_clean=False)
    assert not log.log.has_history
    assert not verify_keys(log.fs, identity(), map_bytes=1 << 20)


def test_after_a_start_a_log_is_judged_once_and_one_without_older_values_never() -> None:
    log = CompactedLog(THREE_VERSIONS)
    append(log, b"a", b"0")
    append(log, b"b", b"0")
    log.reopen(is_clean=True)
    assert log.assess().history_due_ms == LONG_MAX
    log.clean()

    log.reopen(is_clean=True)

    assert log.assess().reason is Reason.HISTORY_DUE
    report = log.execute(log.plan(requested=False))
    assert (report.sweeps, report.groups) == (True, 0)
    assert log.assess().reason is None


def test_passes_for_older_values_rest_between_each_other() -> None:
    log = CompactedLog(replace(CONFIG, compaction_thinning="all for 1h"))
    log.now_ms = AT_NINE_MS
    for number in range(600):
        append(log, b"key-%d" % (number % 3), b"0", ago_ms=number * 1000)
    log.clean()

    sweeps = 0
    for _ in range(3600 + 180):
        log.now_ms += 1000
        sweeps += log.clean_until_idle()

    # The cell of everything older grows by 64th parts of an hour.
    assert 5 < sweeps < 30
    assert len(offsets(log)) == 3


def test_the_pause_between_sweeps_grows_with_their_duration() -> None:
    log = thinned_log()
    append(log, b"a", b"0", ago_ms=HOUR_MS)
    append(log, b"a", b"1", ago_ms=HOUR_MS - 1)
    append(log, b"b", b"0")
    report = log.clean()

    slow = remainder_of(log.plan(), replace(report, seconds=3600.0))

    assert slow.history_due_ms == log.now_ms + 20 * HOUR_MS
    never = replace(report, seconds=3600.0, history_due_ms=LONG_MAX)
    assert remainder_of(replace(log.plan(), sweeps=True), never).history_due_ms == LONG_MAX


def test_the_moment_is_known_over_windows_and_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many keys the older value is in one segment and the last one in another."""
    monkeypatch.setattr("cleaner.pacing.settings.MARKS_BYTES_MIN", 1)
    small = replace(SETTINGS, dedupe_buffer_size=24 * 100)
    log = CompactedLog(replace(CONFIG, compaction_thinning="all for 1h"), small)
    log.now_ms = AT_NINE_MS
    for ago_ms in (2 * HOUR_MS, HOUR_MS // 2):
        for number in range(40):
            append(log, b"key-%d" % number, b"0", ago_ms=ago_ms)
        log.roll()
    append(log, b"x", b"0")
    report = log.clean()
    assert report.parts > 1
    assert report.history_due_ms < AT_NINE_MS + HOUR_MS

    log.now_ms += 10 * HOUR_MS
    log.clean_until_idle()

    assert len(offsets(log)) == 41


def test_a_pass_after_few_new_records_needs_no_more_parts_than_the_first() -> None:
    log = thinned_log()
    for number in range(50):
        append(log, b"key-%d" % (number % 5), b"0", ago_ms=number * HOUR_MS)
    first = log.clean()
    append(log, b"key-1", b"1")
    append(log, b"x", b"1")

    second = log.clean()

    assert (first.parts, second.parts) == (1, 1)


def test_a_finished_sweep_leaves_no_unfinished_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cleaner.pacing.settings.MARKS_BYTES_MIN", 1)
    monkeypatch.setattr("cleaner.pacing.settings.MARKS_SHARE", 10**9)
    log = CompactedLog(THREE_VERSIONS)
    for number in range(3):
        append(log, b"a", b"%d" % number)
    log.roll()
    append(log, b"x", b"0")
    log.clean()
    append(log, b"y", b"0")

    log.log.update_config(replace(THREE_VERSIONS, compaction_versions=1))
    log.clean_until_idle()

    assert offsets(log) == [2, 3, 4]
    assert log.log.cut_offset_min == log.log.clean_offset == 4


def test_sidecars_get_timestamps_when_values_are_thinned_and_lose_them_after_it() -> None:
    log = CompactedLog()
    append(log, b"a", b"0")
    append(log, b"b", b"0")
    log.clean()
    assert kinds_of_sidecars(log) == {"offset"}

    log.log.update_config(THINNED)
    append(log, b"a", b"1")
    assert log.clean().sidecars_built > 0
    assert kinds_of_sidecars(log) == {"offset with timestamps"}

    log.log.update_config(CONFIG)
    log.clean()
    assert kinds_of_sidecars(log) == {"offset"}


def kinds_of_sidecars(log: CompactedLog) -> set[str]:
    names = [name for name in log.files() if name.endswith(KEYS)]
    assert names
    return {
        KeySidecar.open_any(log.fs, f"{DIRECTORY}/{name}").header.strategy.text for name in names
    }


def test_the_fate_of_a_key_says_which_older_values_stay() -> None:
    log = CompactedLog(THREE_VERSIONS)
    for number in range(5):
        append(log, b"a", b"%d" % number)
    view = log.log.cleaning_view(as_if_rolled=True)
    meter = meter_of(log.log, view.generation)

    found = find_key(view, b"a", log.settings, meter=meter, now_ms=log.now_ms)

    assert [each.is_older_value for each in found.records] == [False, False, True, True, False]
    assert [each.superseded_by for each in found.records] == [4, 4, None, None, None]
    assert found.fate == (
        "2 superseded records go with the first pass that reaches offset 4;"
        " the log is clean up to 0",
        "2 older values stay beside its last one: the topic keeps of each key the last 3 values",
        "its last value, at offset 4, stays",
    )


def test_the_fate_of_a_key_says_when_an_older_value_may_go() -> None:
    log = thinned_log()
    append(log, b"a", b"0", ago_ms=50 * 60_000)
    append(log, b"a", b"1", ago_ms=40 * 60_000)
    view = log.log.cleaning_view(as_if_rolled=True)
    meter = meter_of(log.log, view.generation)

    found = find_key(view, b"a", log.settings, meter=meter, now_ms=log.now_ms)

    assert found.fate[0].endswith("one may go at 2024-10-04 10:00:00 UTC")


def test_values_in_a_fence_count_for_none_so_no_older_one_goes_for_them() -> None:
    log = CompactedLog(replace(CONFIG, compaction_versions=2, segment_bytes=1))
    for number in range(4):
        append(log, b"a", b"%d" % number)
        log.roll()
    path = log.log.segments[2].path(LOG)
    flip(log.fs, path, 70)

    log.execute(log.plan())
    around = [segment.record_count for segment in log.log.segments[:2]]
    flip(log.fs, path, 70)
    log.execute(log.plan())

    assert around == [0, 1], "of the readable values the last two stay"
    assert offsets(log) == [2, 3]
    assert log.log.clean_offset == 4


def test_a_history_that_no_setting_keeps_does_not_end_below_a_fence() -> None:
    log = CompactedLog(THREE_VERSIONS)
    for number in range(3):
        append(log, b"a", b"%d" % number)
    log.clean()
    append(log, b"b", b"1")
    log.roll()
    flip(log.fs, log.log.segments[0].path(LOG), 40)
    log.log.update_config(CONFIG)

    log.execute(log.plan())
    had = log.log.has_history
    flip(log.fs, log.log.segments[0].path(LOG), 40)
    log.execute(log.plan())
    log.clean_until_idle()

    assert (had, log.log.has_history) == (True, False)
    assert offsets(log) == [2, 3]


def test_a_sweep_of_a_log_that_begins_within_an_undecided_batch_judges_nothing() -> None:
    log = CompactedLog(replace(CONFIG, compaction_versions=2, min_segment_dead_ratio=0.01))
    log.append((b"a", b"1"), (b"a", b"2"))
    log.clean()
    ended, hanging = TransactionalProducer(log, 7), TransactionalProducer(log, 8)
    ended.send((b"b", b"1"), (b"b", b"2"), (b"b", b"3"), (b"b", b"4"))
    hanging.send((b"c", b"1"))
    # Its marker lies above the transaction that is still open.
    ended.commit()
    log.roll()
    log.log.delete_records(Offset(5))
    before = log.pairs()

    report = log.execute(log.plan())

    assert report.sweeps
    assert log.pairs() == before


@pytest.mark.parametrize(
    "config", [THREE_VERSIONS, THINNED, replace(CONFIG, min_segment_dead_ratio=0.5)]
)
def test_an_aborted_batch_into_which_the_log_start_has_moved_counts_for_nothing(
    config: LogConfig,
) -> None:
    log = CompactedLog(config)
    producer = TransactionalProducer(log, 7)
    producer.send((b"a", b"aborted"), (b"b", b"aborted"))
    producer.abort()
    log.append((b"a", b"1"))
    log.roll()
    log.log.delete_records(Offset(1))

    log.clean()

    assert [value for _, key, value in log.pairs() if key == b"a"] == [b"1"]
