"""A sweep appends tombstones for the keys whose last value has expired, and for no other."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from cleaner.expiry.sweep import GAP_BYTES_MAX, TRIES_MAX
from cleaner.pacing.meter import CleaningAborted
from cleaner.rules.expiry import NEVER
from protocol.records.control_record import ControlType
from protocol.records.record_batch import Codec, Record, build_batch
from protocol.wire.numbers import Epoch, Offset, ProducerId
from storage.formats.log_config import LogConfig
from storage.log.log import PartitionLog
from tests.harness.compacted_log import CONFIG, SETTINGS, START_MS, CompactedLog
from tests.harness.expiry import append_to, plan_of, sweep, tombstones_in
from tests.harness.log_builder import valid

HOUR_MS = 3_600_000
EXPIRING = replace(CONFIG, compaction_ttl_ms=HOUR_MS, compaction_ttl_header="ttl")


def log_with(config: LogConfig = EXPIRING, *, map_bytes: int | None = None) -> CompactedLog:
    settings = SETTINGS if map_bytes is None else replace(SETTINGS, dedupe_buffer_size=map_bytes)
    return CompactedLog(config, settings)


def put(
    log: CompactedLog,
    key: bytes,
    value: bytes | None = b"v",
    *,
    age_ms: int = 0,
    headers: tuple[tuple[str, bytes], ...] = (),
    producer_id: int = -1,
    base_sequence: int = 0,
    codec: Codec = Codec.NONE,
) -> int:
    """Append a record of this age. Returns its offset."""
    record = Record(offset=0, timestamp=log.now_ms - age_ms, key=key, value=value, headers=headers)
    is_transactional = producer_id >= 0
    batch = build_batch(
        [record],
        codec=codec,
        producer_id=producer_id,
        producer_epoch=0 if is_transactional else -1,
        base_sequence=base_sequence if is_transactional else -1,
        is_transactional=is_transactional,
    )
    return log.append_batch(valid(batch)).base_offset


def end_transaction(log: CompactedLog, producer_id: int, kind: ControlType) -> None:
    log.log.appender.append_marker(
        ProducerId(producer_id),
        Epoch(0),
        is_commit=kind is ControlType.COMMIT,
        coordinator_epoch=Epoch(0),
        now_ms=log.now_ms,
    )
    log.make_durable()


def deleted(log: CompactedLog) -> list[bytes | None]:
    return [key for key, _ in tombstones_in(log)]


OLD_MS = HOUR_MS
YOUNG_MS = HOUR_MS - 1


def test_a_key_whose_value_is_old_enough_gets_a_tombstone_that_names_the_value() -> None:
    log = log_with()
    put(log, b"young", age_ms=YOUNG_MS)
    put(log, b"old", age_ms=OLD_MS)

    report = sweep(log)

    assert tombstones_in(log) == [(b"old", (("kompakt.expired", b"1"),))]
    assert (report.expired, report.tombstones, report.deferred) == (1, 1, 0)
    assert report.due_ms == log.now_ms + 1


def test_a_record_says_in_its_header_when_it_expires() -> None:
    log = log_with()
    put(log, b"sooner", headers=(("ttl", b"0"),))
    put(log, b"later", age_ms=OLD_MS, headers=(("ttl", b"%d" % (2 * HOUR_MS)),))
    put(log, b"unreadable", age_ms=OLD_MS, headers=(("ttl", b"1h"),))

    report = sweep(log)

    assert deleted(log) == [b"sooner", b"unreadable"]
    assert report.unreadable == 1


@pytest.mark.parametrize("is_sealed", [False, True])
@pytest.mark.parametrize("newer", [b"new", None])
def test_an_old_value_with_a_newer_record_gets_no_tombstone(
    newer: bytes | None, is_sealed: bool
) -> None:
    log = log_with()
    put(log, b"a", age_ms=OLD_MS)
    log.roll()
    put(log, b"a", newer)
    if is_sealed:
        log.roll()

    report = sweep(log)

    assert report.expired == 1
    assert report.tombstones == 0


def test_cleaning_drops_the_value_behind_the_tombstone_and_then_the_tombstone() -> None:
    log = log_with()
    put(log, b"a", age_ms=OLD_MS)
    sweep(log)
    put(log, b"last")
    log.roll()

    log.clean_until_idle()
    assert [record.key for record in log.records()] == [b"a", b"last"]
    assert deleted(log) == [b"a"]

    log.now_ms += 2000
    log.clean_until_idle()
    assert [record.key for record in log.records()] == [b"last"]


def test_the_second_sweep_reads_only_what_is_due_and_what_is_new() -> None:
    log = log_with(replace(EXPIRING, segment_bytes=1))
    for number in range(5):
        put(log, b"key-%d" % number, b"v" * 1000, age_ms=YOUNG_MS - number * 1000)
    first = sweep(log)
    assert first.bytes_read > 5000

    put(log, b"new")
    second = sweep(log, plan=plan_of(log, first.ranges))
    assert 0 < second.bytes_read < 200

    idle = sweep(log, plan=plan_of(log, second.ranges))
    assert idle.bytes_read == 0
    assert idle.due_ms == second.due_ms == START_MS + 1


def test_only_values_below_the_last_stable_offset_expire() -> None:
    log = log_with()
    put(log, b"other", producer_id=7)
    put(log, b"a", age_ms=OLD_MS)

    waiting = sweep(log)
    assert (waiting.expired, waiting.tombstones) == (0, 0)

    end_transaction(log, 7, ControlType.COMMIT)
    assert sweep(log, plan=plan_of(log, waiting.ranges)).tombstones == 1


def test_an_open_transaction_with_a_newer_value_defers_the_expiry_until_it_is_aborted() -> None:
    log = log_with()
    put(log, b"a", age_ms=OLD_MS)
    put(log, b"a", b"newer", producer_id=7)

    first = sweep(log)
    assert (first.tombstones, first.deferred, first.due_ms) == (0, 1, 0)

    end_transaction(log, 7, ControlType.ABORT)
    second = sweep(log, plan=plan_of(log, first.ranges))
    assert (second.tombstones, second.deferred, second.due_ms) == (1, 0, NEVER)


def test_an_open_transaction_with_a_newer_value_wins_if_it_is_committed() -> None:
    log = log_with()
    put(log, b"a", age_ms=OLD_MS)
    put(log, b"a", b"newer", producer_id=7)
    first = sweep(log)

    end_transaction(log, 7, ControlType.COMMIT)

    assert sweep(log, plan=plan_of(log, first.ranges)).tombstones == 0
    assert deleted(log) == []


def test_aborted_values_neither_expire_nor_hold_others() -> None:
    log = log_with()
    put(log, b"a", age_ms=OLD_MS)
    put(log, b"a", b"aborted", producer_id=7)
    put(log, b"b", b"aborted", age_ms=OLD_MS, producer_id=7, base_sequence=1)
    end_transaction(log, 7, ControlType.ABORT)
    log.roll()

    sweep(log)

    assert tombstones_in(log) == [(b"a", (("kompakt.expired", b"0"),))]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_record_that_comes_between_proof_and_append_saves_its_key(codec: Codec) -> None:
    log = log_with()
    for key in (b"a", b"b"):
        put(log, key, age_ms=OLD_MS)
    steps = iter([0, 0, 1])

    def between() -> None:
        # After the tombstones were written, and before they are appended.
        if next(steps, 0):
            put(log, b"b", b"new", codec=codec)

    report = sweep(log, between=between)

    assert deleted(log) == [b"a"]
    assert report.tombstones == 1


def test_more_new_records_than_a_turn_may_compare_are_compared_in_the_thread() -> None:
    log = log_with()
    for key in (b"a", b"b"):
        put(log, key, age_ms=OLD_MS)
    steps = iter([0, 0, 1])

    def between() -> None:
        if next(steps, 0):
            put(log, b"b", b"x" * GAP_BYTES_MAX)

    assert sweep(log, between=between).tombstones == 1
    assert deleted(log) == [b"a"]


def test_small_batches_that_inflate_to_much_are_compared_in_the_thread() -> None:
    log = log_with()
    for key in (b"a", b"b"):
        put(log, key, age_ms=OLD_MS)
    steps = iter([0, 0, 1])

    def between() -> None:
        if next(steps, 0):
            put(log, b"b", b"x" * (1 << 20), codec=Codec.GZIP)

    assert sweep(log, between=between).tombstones == 1
    assert deleted(log) == [b"a"]


def test_beside_producers_that_are_too_fast_the_next_sweep_takes_over() -> None:
    log = log_with()
    put(log, b"a", age_ms=OLD_MS)
    written = 0

    def between() -> None:
        nonlocal written
        written += 1
        put(log, b"flood", b"x" * GAP_BYTES_MAX)

    report = sweep(log, between=between)

    assert written <= 2 * TRIES_MAX + 3
    assert (report.tombstones, report.deferred) == (0, 1)
    assert sweep(log, plan=plan_of(log, report.ranges)).tombstones == 1


def test_many_expired_values_go_in_rounds_and_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cleaner.expiry.sweep.TOMBSTONES_PER_BATCH", 3)
    log = log_with(map_bytes=256 * 4)
    for number in range(10):
        put(log, b"key-%d" % number, age_ms=OLD_MS)
    log.roll()

    report = sweep(log)

    assert sorted(key or b"" for key in deleted(log)) == [b"key-%d" % each for each in range(10)]
    assert report.tombstones == 10
    counts = [header.record_count for header in log.headers() if header.base_offset >= 10]
    assert counts == [3, 1, 3, 1, 2]


def test_a_key_of_which_several_values_have_expired_gets_one_tombstone() -> None:
    log = log_with(map_bytes=256)
    for _ in range(3):
        put(log, b"a", age_ms=OLD_MS)
        put(log, b"b", age_ms=OLD_MS)

    assert sweep(log).tombstones == 2
    assert sorted(headers for _, headers in tombstones_in(log)) == [
        (("kompakt.expired", b"4"),),
        (("kompakt.expired", b"5"),),
    ]


def test_where_timestamps_decide_the_tombstone_has_that_of_the_value() -> None:
    log = log_with(replace(EXPIRING, compaction_strategy="timestamp"))
    put(log, b"a", age_ms=OLD_MS)
    sweep(log)

    # A value that is younger than the expired one, but older than the sweep, still wins.
    put(log, b"a", b"late", age_ms=YOUNG_MS)
    put(log, b"end")
    log.roll()
    log.clean_until_idle()

    assert [record.value for record in log.records() if record.key == b"a"] == [b"late"]


def test_where_a_header_decides_the_tombstone_has_the_version_of_the_value() -> None:
    log = log_with(
        replace(EXPIRING, compaction_strategy="header", compaction_strategy_header="version")
    )
    version = ("version", struct.pack(">q", 9))
    put(log, b"a", b"wins", age_ms=OLD_MS, headers=(version,))
    put(log, b"a", b"has lost", headers=(("version", struct.pack(">q", 8)),))

    sweep(log)

    assert tombstones_in(log) == [(b"a", (("kompakt.expired", b"0"), version))]


def test_with_log_append_time_the_tombstone_has_the_time_of_its_append() -> None:
    log = log_with(replace(EXPIRING, message_timestamp_type="LogAppendTime"))
    put(log, b"a", age_ms=OLD_MS)

    sweep(log)

    header = log.headers()[-1]
    assert header.max_timestamp == log.now_ms
    assert header.timestamp_type.name == "LOG_APPEND_TIME"


def test_values_below_the_log_start_are_left_alone() -> None:
    log = log_with()
    put(log, b"a", age_ms=OLD_MS)
    put(log, b"b", age_ms=OLD_MS)
    steps = iter([0, 0, 1])

    def between() -> None:
        if next(steps, 0):
            log.log.delete_records(Offset(1))

    assert sweep(log, between=between).tombstones == 1
    assert deleted(log) == [b"b"]


@pytest.mark.parametrize(
    "change",
    [
        lambda log: log.update_config(replace(log.config, compaction_ttl_ms=-1)),
        lambda log: log.update_config(replace(log.config, cleanup_policy=("delete",))),
        lambda log: log.update_config(replace(log.config, mirror_link="link")),
        PartitionLog.retire,
    ],
)
def test_a_change_of_the_log_or_its_settings_ends_the_sweep(change: object) -> None:
    log = log_with()
    put(log, b"a", age_ms=OLD_MS)
    end = log.log.log_end_offset
    steps = iter([0, 0, 1])

    def between() -> None:
        if next(steps, 0):
            assert callable(change)
            change(log.log)

    with pytest.raises(CleaningAborted):
        sweep(log, between=between)
    assert log.log.log_end_offset == end


def test_nothing_may_be_appended_between_proof_and_tombstones() -> None:
    log = log_with()
    put(log, b"a", age_ms=OLD_MS)

    def append(its: PartitionLog, batch: object) -> object:
        put(log, b"a", b"new")
        return append_to(log)(its, batch)  # type: ignore[arg-type]

    with pytest.raises(AssertionError, match="between proof and tombstones"):
        sweep(log, append=append)  # type: ignore[arg-type]


def test_older_values_go_with_the_tombstone() -> None:
    log = log_with(replace(EXPIRING, compaction_versions=3))
    put(log, b"a", b"older", age_ms=OLD_MS)
    put(log, b"a", b"last", age_ms=OLD_MS)
    log.roll()
    log.clean_until_idle()
    assert len(log.records()) == 2

    sweep(log)
    put(log, b"end")
    log.roll()
    log.clean_until_idle()

    assert [(record.key, record.value) for record in log.records()] == [
        (b"a", None),
        (b"end", b"v"),
    ]
