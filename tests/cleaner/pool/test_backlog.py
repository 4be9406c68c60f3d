"""The backlog of logs, as metrics and commands see it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner.pool import backlog as module
from cleaner.pool.backlog import Backlog, Backlogs
from cleaner.rules.pick import Assessment, assess
from storage.files.paths import KEYS, LOG
from storage.formats.config_property import LONG_MAX
from tests.harness.compacted_log import CONFIG, CompactedLog
from tests.harness.damage import flip


def backlog_of(compacted: CompactedLog) -> Backlog:
    ((_, backlog),) = Backlogs().survey([compacted.log], compacted.now_ms)
    assert backlog is not None
    return backlog


def test_what_is_cleaned_is_dirty_no_more_and_the_active_segment_is_dirty_but_not_cleanable() -> (
    None
):
    compacted = CompactedLog()
    compacted.append_segment((b"a", b"1"), (b"a", b"2"))
    compacted.append((b"b", b"1"))
    sealed, active = compacted.log.segments

    before = backlog_of(compacted)
    compacted.execute(compacted.plan())
    after = backlog_of(compacted)

    assert before.dirty_bytes == sealed.size + active.size
    assert before.cleanable_bytes == sealed.size
    assert (before.dirty_ratio, before.offset_lag) == (1.0, 3)
    assert after.dirty_bytes == active.size
    assert (after.cleanable_bytes, after.dirty_ratio, after.offset_lag) == (0, 0.0, 1)
    assert after.clean_bytes == compacted.log.segments[0].size


def test_a_missed_deadline_grows_without_the_pool_until_the_log_is_cleaned() -> None:
    compacted = CompactedLog(replace(CONFIG, max_compaction_lag_ms=1000))
    backlogs = Backlogs()

    def overdue_ms() -> int:
        ((_, backlog),) = backlogs.survey([compacted.log], compacted.now_ms)
        assert backlog is not None
        return backlog.overdue_ms(compacted.now_ms)

    compacted.append_segment((b"a", b"1"))
    assert overdue_ms() == 0
    compacted.now_ms += 1500
    assert overdue_ms() == 500
    compacted.now_ms += 1000
    assert overdue_ms() == 1500
    compacted.execute(compacted.plan())
    assert overdue_ms() == 0


def test_tombstones_are_told_with_the_earliest_horizon_once_a_pass_has_counted_them() -> None:
    compacted = CompactedLog(replace(CONFIG, delete_retention_ms=1000))
    compacted.append_segment((b"a", None), (b"b", None), (b"c", b"1"))
    before = backlog_of(compacted)
    assert (before.tombstones_count, before.horizon_ms) == (0, None)

    compacted.execute(compacted.plan())

    after = backlog_of(compacted)
    assert (after.tombstones_count, after.horizon_ms) == (2, compacted.now_ms + 1000)
    assert after.tombstones_due_ms == compacted.now_ms + 1000
    assert after.tombstone_bytes == compacted.log.segments[0].tombstone_bytes > 0


def test_key_sidecars_are_counted_beside_the_log_and_only_while_they_are_there() -> None:
    compacted = CompactedLog()
    compacted.append_segment((b"a", b"1"), (b"b", b"1"))
    compacted.append_segment((b"c", b"1"))
    assert backlog_of(compacted).key_sidecar_bytes == 0

    compacted.execute(compacted.plan())

    def on_disk() -> int:
        sealed = compacted.log.segments[:-1]
        return sum(compacted.fs.size(segment.path(KEYS)) for segment in sealed)

    assert backlog_of(compacted).key_sidecar_bytes == on_disk() > 0
    for segment in compacted.log.cleaning_view().segments:
        segment.drop_key_sidecar()
    assert backlog_of(compacted).key_sidecar_bytes == 0


def test_a_log_that_is_not_compacted_has_no_backlog_and_one_that_is_empty_an_empty_one() -> None:
    plain = CompactedLog(replace(CONFIG, cleanup_policy=("delete",)))
    ((_, backlog),) = Backlogs().survey([plain.log], plain.now_ms)
    assert backlog is None

    empty = backlog_of(CompactedLog())

    assert (empty.dirty_bytes, empty.dirty_ratio, empty.offset_lag) == (0, 0.0, 0)
    assert empty.deadline_ms == LONG_MAX


ACTIONS = st.lists(
    st.sampled_from(["append", "tombstone", "roll", "clean", "wait", "reconfigure"]), max_size=20
)


@given(actions=ACTIONS)
def test_what_is_kept_between_surveys_is_what_a_first_survey_finds(actions: list[str]) -> None:
    config = replace(CONFIG, min_compaction_lag_ms=300, max_compaction_lag_ms=1000)
    compacted, backlogs = CompactedLog(config), Backlogs()
    for action in actions:
        if action == "append":
            compacted.append((b"a", b"1"))
        elif action == "tombstone":
            compacted.append((b"b", None))
        elif action == "roll":
            compacted.roll()
        elif action == "clean":
            compacted.execute(compacted.plan())
        elif action == "wait":
            compacted.now_ms += 250
        else:
            compacted.log.update_config(replace(config, min_compaction_lag_ms=0))

        ((_, kept),) = backlogs.survey([compacted.log], compacted.now_ms)

        assert kept == backlog_of(compacted)


def test_a_log_that_has_not_changed_is_not_assessed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    compacted, backlogs, assessed = CompactedLog(), Backlogs(), 0
    compacted.append_segment((b"a", b"1"))

    def counting(*arguments: object, **others: object) -> Assessment:
        nonlocal assessed
        assessed += 1
        return assess(*arguments, **others)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "assess", counting)
    for _ in range(5):
        list(backlogs.survey([compacted.log], compacted.now_ms))
    assert assessed == 1

    list(backlogs.survey([compacted.log], compacted.now_ms + module.CACHE_MS_MAX))
    assert assessed == 2


def test_a_log_that_is_gone_is_forgotten() -> None:
    compacted, backlogs = CompactedLog(), Backlogs()
    list(backlogs.survey([compacted.log], compacted.now_ms))

    list(backlogs.survey([], compacted.now_ms))

    assert not backlogs._cache


def test_what_was_judged_above_a_fence_is_no_backlog() -> None:
    compacted, backlogs = CompactedLog(replace(CONFIG, max_compaction_lag_ms=1)), Backlogs()
    for _ in range(3):
        compacted.append_segment((b"a", b"1"))
    flip(compacted.fs, compacted.log.segments[1].path(LOG), 40)
    compacted.execute(compacted.plan())
    compacted.now_ms += 1000

    ((_, backlog),) = backlogs.survey(
        [compacted.log], compacted.now_ms, lambda _log: compacted.remainder
    )

    assert backlog is not None
    assert (backlog.dirty_bytes, backlog.cleanable_bytes) == (0, 0)
    assert backlog.overdue_ms(compacted.now_ms) == 0
