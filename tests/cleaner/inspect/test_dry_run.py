"""A rehearsal predicts the pass: the same report and rows, and it changes nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleaner.inspect.dry_run import DryMeter, dry_run, predicted_report, throttle_seconds
from cleaner.pacing.meter import CleaningAborted
from cleaner.pacing.probe import SilentProbe
from cleaner.pacing.throttle import IoRates, Throttle
from cleaner.rules.record_verdict import Verdict
from protocol.records.record_batch import Codec
from protocol.wire.numbers import Offset
from tests.harness.compacted_log import CONFIG, SETTINGS, CompactedLog, never_stop
from tests.harness.rehearsal import check_prediction, rehearse
from tests.harness.transactional_producer import TransactionalProducer


def test_it_says_what_dies_by_reason_and_group_and_what_the_pass_reads_and_writes() -> None:
    log = CompactedLog()
    log.append_segment((b"a", b"1"), (b"b", b"1"))
    log.append_segment((b"a", b"2"), (b"c", None))
    log.append((b"b", b"2"))

    predicted, done = check_prediction(log)

    assert predicted.rolls
    (group,) = predicted.replaced
    assert [row.base_offset for row in group.sources] == [0, 2, 4]
    assert group.by_verdict[Verdict.DROPPED_SUPERSEDED].records == 2
    assert group.by_verdict[Verdict.DROPPED_SUPERSEDED].bytes > 0
    assert done.bytes_read > 0
    assert done.bytes_written > 0


def test_what_was_appended_after_it_is_not_in_it() -> None:
    log = CompactedLog()
    log.append((b"a", b"1"), (b"a", b"2"))
    predicted = rehearse(log)
    log.append((b"a", b"3"))

    assert predicted.report.records_before == 2
    assert log.clean().records_before == 3


def test_it_does_not_roll_and_says_whether_a_pass_would() -> None:
    log = CompactedLog()
    log.append((b"a", b"1"))
    assert rehearse(log).rolls
    assert len(log.log.segments) == 1

    log.roll()
    assert not rehearse(log).rolls


def test_the_minimum_lag_holds_in_it_too() -> None:
    log = CompactedLog(replace(CONFIG, min_compaction_lag_ms=1000))
    log.append((b"a", b"1"))
    log.now_ms += 500
    log.append_segment((b"a", b"2"))
    log.append((b"a", b"3"))

    predicted, _ = check_prediction(log)

    assert predicted.report.records_before == 0
    assert predicted.replaced == ()


def test_a_pass_that_is_not_verified_is_predicted_without_the_second_read() -> None:
    log = CompactedLog(settings=replace(SETTINGS, verify=False))
    log.append_segment((b"a", b"1"), (b"a", b"2"))

    predicted, _ = check_prediction(log)

    assert not predicted.report.is_verified


def test_a_group_that_would_not_change_is_untouched() -> None:
    log = CompactedLog(replace(CONFIG, segment_bytes=200))
    log.append_segment((b"a", b"1" * 100))
    log.append_segment((b"b", b"1" * 100))
    log.clean()
    log.append_segment((b"c", b"1" * 100))

    predicted, _ = check_prediction(log)

    assert [row.base_offset for row in predicted.untouched] == [0, 1, 2]


def test_transactions_are_judged_as_by_the_pass() -> None:
    log = CompactedLog()
    producer = TransactionalProducer(log, 7)
    producer.send((b"a", b"1"), (b"b", b"1"))
    producer.abort()
    producer.send((b"a", b"2"))
    producer.commit()
    producer.send((b"a", b"3"))

    predicted, done = check_prediction(log)

    assert done.records_by_verdict["dropped_aborted"] == 2
    assert predicted.report.end_offset == log.log.last_stable_offset == 5


def test_it_ends_when_the_log_is_truncated_under_it() -> None:
    log = CompactedLog()
    log.append_segment((b"a", b"1"), (b"a", b"2"))
    view = log.log.cleaning_view(as_if_rolled=True)
    plan = replace(log.plan(), view=view)
    log.log.truncate_to(Offset(1))
    meter = DryMeter(
        throttle=Throttle(clock=lambda: 0.0),
        probe=SilentProbe(),
        sleep=never_stop,
        is_stale=lambda: log.log.generation != view.generation,
    )

    with pytest.raises(CleaningAborted):
        dry_run(log.log, plan, SETTINGS, meter=meter, monotonic=lambda: 0.0, rates=IoRates())


def test_its_time_is_what_the_budgets_let_the_pass_take() -> None:
    log = CompactedLog()
    log.append_segment((b"a", b"1"), (b"a", b"2"))

    report = rehearse(log, IoRates(total=10.0)).report

    assert report.seconds == (report.bytes_read + report.bytes_written) / 10
    assert throttle_seconds(100, 50, IoRates(total=1000.0, read=10.0, write=1.0)) == 50
    assert throttle_seconds(100, 50, IoRates()) == 0


def test_its_time_is_that_of_reading_and_what_past_passes_waited_for_the_disk() -> None:
    log = CompactedLog()
    log.append_segment((b"a", b"1"), (b"a", b"2"))
    small = replace(log.clean(), seconds=9.0)
    # Of its 50 s, reading took 30, at 1 s per MB; writing 20 MB took the other 20. One pass was
    # throttled.
    large = replace(small, bytes_read=30_000_000, bytes_written=20_000_000, seconds=71.0)
    large = replace(large, throttled_seconds=1.0)
    rehearsed = replace(small, bytes_read=10_000_000, bytes_written=5_000_000, seconds=10.0)
    rates = IoRates()

    guessed = predicted_report(rehearsed, [small], is_verified=False, rates=rates)
    known = predicted_report(rehearsed, [small, large, large], is_verified=False, rates=rates)

    assert guessed.seconds == pytest.approx(10.0 + 5.0)
    assert known.seconds == pytest.approx(10.0 + 5.0 * 2)


KEYS = st.sampled_from([b"a", b"b", b"c", b"d"])
VALUES = st.sampled_from([b"1", b"2" * 200, None])
APPEND = st.tuples(
    st.just("append"),
    st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=5),
    st.sampled_from([Codec.NONE, Codec.LZ4, Codec.ZSTD]),
)
STEP = APPEND | st.sampled_from([("roll",), ("clean",), ("wait",)])


@settings(max_examples=60, deadline=None)
@given(st.lists(STEP, max_size=25), st.sampled_from([300, 1000, 1 << 20]))
def test_any_history_is_predicted_to_the_byte(steps: list[tuple], segment_bytes: int) -> None:  # type: ignore[type-arg]
    log = CompactedLog(replace(CONFIG, segment_bytes=segment_bytes))
    for step in [*steps, ("clean",), ("wait",), ("clean",)]:
        if step[0] == "append":
            log.append(*step[1], codec=step[2])
        elif step[0] == "roll":
            log.roll()
        elif step[0] == "wait":
            log.now_ms += CONFIG.delete_retention_ms
        else:
            check_prediction(log)
