"""Segments of which only a small share is superseded: when a pass leaves them, and when it does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cleaner.inspect.key_search import find_key
from cleaner.inspect.verify_keys import verify_keys
from cleaner.rules.pick import Reason
from protocol.records.record_batch import Codec
from storage.formats.config_property import LONG_MAX, ConfigError
from storage.formats.log_config import LogConfig
from tests.harness.compacted_log import CONFIG, SETTINGS, CompactedLog, identity, meter_of
from tests.harness.log_builder import KeyValue
from tests.harness.rehearsal import check_prediction
from tests.harness.table_digest import digest_of
from tests.harness.transactional_producer import TransactionalProducer

UNSPARING = replace(CONFIG, segment_bytes=2000)
"""A segment of ten records has no room for its neighbours."""
SPARING = replace(UNSPARING, min_segment_dead_ratio=0.25)
LAG_MS = 60_000
VALUE = b"v" * 100


def full_segment(*first: KeyValue) -> list[KeyValue]:
    """Returns ten records of about the same size; each but the first ones has a key of its own."""
    return [*first, *((b"only-%d" % number, VALUE) for number in range(10 - len(first)))]


def log_of(*segments: list[KeyValue], config: LogConfig = SPARING) -> CompactedLog:
    log = CompactedLog(config)
    for number, pairs in enumerate(segments):
        log.append_segment(
            *((b"%d-%b" % (number, k) if k and k[:4] == b"only" else k, v) for k, v in pairs)
        )
    return log


def offsets(log: CompactedLog) -> list[int]:
    return [offset for offset, _, _ in log.pairs()]


def test_a_segment_is_left_below_the_ratio_and_rewritten_at_it() -> None:
    log = log_of(
        full_segment((b"a", VALUE)), full_segment((b"b", VALUE), (b"c", VALUE), (b"d", VALUE))
    )
    log.append_segment((b"a", VALUE), (b"b", VALUE), (b"c", VALUE), (b"d", VALUE))
    before = log.log.segments

    report = log.execute(log.plan())

    # A tenth of the first segment is superseded, and more than a quarter of the second one.
    assert log.log.segments[0] is before[0]
    assert log.log.segments[1] is not before[1]
    assert (report.segments_spared, report.records_spared, report.groups) == (1, 1, 1)
    assert "1 superseded record left in 1 segment (min.segment.dead.ratio)" in str(report)
    assert log.log.clean_offset == 24
    assert log.log.has_history
    assert log.assess().reason is None


def test_the_share_is_one_of_bytes_and_compression_does_not_matter() -> None:
    log = CompactedLog(replace(SPARING, segment_bytes=1))
    log.append((b"a", b"v" * 100), (b"b", b"v" * 400), codec=Codec.ZSTD)
    log.append((b"c", b"v" * 400), (b"d", b"v" * 100), codec=Codec.ZSTD)
    log.append_segment((b"a", b"2"), (b"c", b"2"))

    report = log.execute(log.plan())

    assert offsets(log) == [0, 1, 3, 4, 5]
    assert report.records_spared == 1


def test_what_was_left_counts_until_there_is_enough() -> None:
    log = log_of(full_segment((b"a", VALUE), (b"b", VALUE), (b"c", VALUE)))
    for number, key in enumerate((b"a", b"b", b"c"), 1):
        log.append_segment((key, VALUE))
        report = log.execute(log.plan())
        assert report.records_spared == (number if number < 3 else 0)
        assert log.log.has_history is (number < 3)

    assert offsets(log) == list(range(3, 13))


def test_a_segment_that_is_rewritten_for_another_reason_loses_what_might_have_stayed() -> None:
    log = log_of(full_segment((b"a", VALUE), (b"gone", None)))
    log.append_segment((b"a", VALUE))

    report = log.execute(log.plan())

    # The tombstone gets its delete horizon, so the segment is rewritten.
    assert offsets(log) == list(range(1, 11))
    assert report.records_spared == 0
    assert not log.log.has_history


def test_without_the_setting_nothing_is_left() -> None:
    log = log_of(full_segment((b"a", VALUE)), config=UNSPARING)
    log.append_segment((b"a", VALUE))

    report = log.execute(log.plan())

    assert offsets(log) == list(range(1, 11))
    assert (report.records_spared, report.sweeps, log.log.has_history) == (0, False, False)


# ------------------------------------------------------------------------------- deletions


def test_what_a_tombstone_deletes_goes_with_the_first_pass() -> None:
    log = log_of(full_segment((b"a", VALUE)))
    log.append_segment((b"a", None))

    report = log.execute(log.plan())

    assert offsets(log) == list(range(1, 11))
    assert report.records_spared == 0


def test_a_deletion_also_takes_what_earlier_passes_have_left_and_nothing_comes_back() -> None:
    log = log_of(full_segment((b"a", VALUE)), full_segment((b"a", b"2")))
    log.append_segment((b"a", b"3"), (b"last", b"1"))
    first = log.execute(log.plan())
    assert (first.records_spared, b"a" in {key for _, key, _ in log.pairs()}) == (2, True)

    log.append_segment((b"a", None), (b"last", b"2"))
    log.execute(log.plan())
    assert [offset for offset, key, _ in log.pairs() if key == b"a"] == [22]
    log.now_ms += SPARING.delete_retention_ms
    log.append_segment((b"last", b"3"))
    log.execute(log.plan())

    assert b"a" not in {key for _, key, _ in log.pairs()}


def test_an_aborted_record_goes_at_once() -> None:
    log = CompactedLog(SPARING)
    producer = TransactionalProducer(log, 1)
    log.append(*((b"k%d" % number, VALUE) for number in range(20)))
    producer.send((b"aborted", VALUE))
    producer.abort()
    log.append((b"last", b"1"))
    log.roll()

    log.execute(log.plan())

    assert b"aborted" not in {key for _, key, _ in log.pairs()}


# ------------------------------------------------------------------------------- deadlines


def late_log() -> CompactedLog:
    log = log_of(full_segment((b"a", VALUE)), config=replace(SPARING, max_compaction_lag_ms=LAG_MS))
    log.append_segment((b"a", VALUE))
    log.now_ms += LAG_MS // 2
    report = log.execute(log.plan())
    assert (report.records_spared, report.spared_due_ms) == (1, log.now_ms + LAG_MS // 2)
    return log


@pytest.mark.parametrize(
    ("before_ms", "after_ms", "left_ms"),
    [
        pytest.param(LONG_MAX, LAG_MS, 0, id="from-none"),
        pytest.param(LAG_MS, 2 * LAG_MS, LAG_MS + LAG_MS // 2, id="longer"),
        pytest.param(LAG_MS, LAG_MS * 3 // 4, LAG_MS // 4, id="shorter"),
        pytest.param(LAG_MS, LONG_MAX, LONG_MAX, id="to-none"),
    ],
)
def test_another_greatest_lag_counts_from_when_the_record_was_superseded(
    before_ms: int, after_ms: int, left_ms: int
) -> None:
    lag = replace(SPARING, max_compaction_lag_ms=before_ms)
    log = log_of(full_segment((b"a", VALUE)), config=lag)
    log.append_segment((b"a", VALUE))
    log.now_ms += LAG_MS // 2
    log.execute(log.plan())

    log.log.update_config(replace(SPARING, max_compaction_lag_ms=after_ms))

    expected = left_ms if left_ms in (0, LONG_MAX) else log.now_ms + left_ms
    assert log.assess().spared_due_ms == expected
    assert (log.assess().reason is Reason.DEADLINE) == (left_ms == 0)


def test_a_record_is_left_no_longer_than_the_greatest_lag() -> None:
    log = late_log()
    due_ms = log.now_ms + LAG_MS // 2
    assert (log.assess().reason, log.assess().wake_ms) == (None, due_ms)

    log.now_ms = due_ms
    assert log.assess().reason is Reason.DEADLINE
    assert log.clean_until_idle() == 1

    assert offsets(log) == list(range(1, 11))
    assert not log.log.has_history


def test_a_pass_for_a_missed_deadline_leaves_nothing() -> None:
    log = log_of(full_segment((b"a", VALUE)), config=replace(SPARING, max_compaction_lag_ms=LAG_MS))
    log.append_segment((b"a", VALUE))
    log.now_ms += LAG_MS

    report = log.execute(log.plan(requested=False))

    assert (report.reason, report.records_spared) == ("DEADLINE", 0)


def test_after_a_start_nothing_is_left_if_a_deadline_may_be_over() -> None:
    log = late_log()
    log.reopen(is_clean=True)

    assert log.assess().reason is Reason.DEADLINE
    log.clean_until_idle()

    assert not log.log.has_history


def test_what_changed_settings_supersede_has_a_deadline_without_dirty_records() -> None:
    config = replace(SPARING, max_compaction_lag_ms=LAG_MS)
    log = log_of(full_segment((b"a", VALUE)), config=replace(config, compaction_versions=2))
    log.append_segment((b"a", VALUE))
    log.execute(log.plan())

    log.log.update_config(config)
    report = log.execute(log.plan(requested=False))

    assert (report.reason, report.records_spared) == ("HISTORY_DUE", 1)
    assert report.spared_due_ms == log.now_ms + LAG_MS
    log.now_ms += LAG_MS
    log.clean_until_idle()
    assert offsets(log) == list(range(1, 11))


# -------------------------------------------------------------------------- other settings


def test_when_the_ratio_is_set_to_zero_what_was_left_goes() -> None:
    log = log_of(full_segment((b"a", VALUE)))
    log.append_segment((b"a", VALUE))
    log.execute(log.plan())

    log.log.update_config(UNSPARING)
    assert log.assess().reason is Reason.HISTORY_DUE
    log.clean_until_idle()

    assert offsets(log) == list(range(1, 11))
    assert not log.log.has_history


def test_it_goes_together_with_older_values() -> None:
    log = log_of(
        full_segment((b"a", VALUE), (b"b", VALUE), (b"c", VALUE), (b"d", VALUE)),
        config=replace(SPARING, compaction_versions=2),
    )
    log.append_segment((b"a", b"2"), (b"b", b"2"), (b"c", b"2"), (b"d", b"2"))
    assert log.execute(log.plan()).records_spared == 0
    log.append_segment((b"a", b"3"))
    assert log.execute(log.plan()).records_spared == 1
    log.append_segment((b"b", b"3"), (b"c", b"3"))

    report = log.execute(log.plan())

    assert report.records_spared == 0
    assert offsets(log)[:2] == [3, 4]


def test_a_map_in_parts_leaves_the_same() -> None:
    found = []
    for slots in (10_000, 16):
        log = CompactedLog(SPARING, replace(SETTINGS, dedupe_buffer_size=32 * slots))
        for number in range(6):
            log.append_segment(*((b"%d" % (number * each % 97), VALUE) for each in range(40)))
            log.execute(log.plan())
        found.append(log.pairs())
    assert found[0] == found[1]


# ------------------------------------------------------------------------------ what it shows


def test_digest_search_and_check_know_what_was_left() -> None:
    log = log_of(full_segment((b"a", VALUE)))
    log.append_segment((b"a", b"new"))
    before = digest_of(log)
    log.execute(log.plan())

    assert digest_of(log).digest == before.digest
    assert [finding.text for finding in verify_keys(log.fs, identity(), map_bytes=1 << 20)] == [
        "its keys were not checked: it keeps older values of them"
    ]
    view = log.log.cleaning_view()
    found = find_key(
        view, b"a", SETTINGS, meter=meter_of(log.log, view.generation), now_ms=log.now_ms
    )
    assert found.records[0].superseded_by == 10
    assert any("min.segment.dead.ratio" in sentence for sentence in found.fate)


def test_a_rehearsal_foretells_what_is_left() -> None:
    log = log_of(full_segment((b"a", VALUE)), full_segment((b"b", VALUE)))
    log.append((b"a", VALUE), (b"b", VALUE))

    foretold, report = check_prediction(log)

    assert (foretold.report.records_spared, report.records_spared) == (2, 2)
    assert len(foretold.untouched) == 3


def test_it_does_not_go_together_with_versions() -> None:
    with pytest.raises(ConfigError, match="cannot be combined with min"):
        replace(SPARING, compaction_strategy="timestamp").check_compaction()
