"""The 24 invariants of log compaction, each through a real log and a real pass.

They were gathered from Apache Kafka's cleaner, its tests and the bugs of a decade (KAFKA-631 and on).
Here each has one test of its name that a reader can go through; the depth is elsewhere: properties in
tests/properties, crash states in tests/crash, races in test_races.py.
"""

from __future__ import annotations

import asyncio
import errno
import struct
import time
from dataclasses import replace
from random import Random

import pytest

from cleaner.clean import clean, plan_groups
from cleaner.kernel import siphash128
from cleaner.meter import CleaningAborted, PassMeter
from cleaner.pick import Blocker, Reason
from cleaner.pool import CleanerPool
from cleaner.probe import SilentProbe
from cleaner.settings import CHUNK_BYTES_MIN
from cleaner.throttle import IoRates, Throttle
from protocol.errors import CorruptBatch
from protocol.record_batch import (
    Codec,
    Record,
    TimestampType,
    build_batch,
)
from storage.log import PartitionLog
from storage.paths import LOG, MANIFEST
from tests.harness.compacted_log import (
    CONFIG,
    SETTINGS,
    CompactedLog,
    headers_in,
    read_bytes,
    records_of,
)
from tests.harness.log_builder import batch_of, valid
from tests.harness.memory_fs import Loss
from tests.harness.transactional_producer import TransactionalProducer

RETENTION_MS = CONFIG.delete_retention_ms
KEYS = [b"key-%d" % number for number in range(6)]
EACH_SEGMENT_ITS_GROUP = replace(CONFIG, segment_bytes=1)


def random_log(seed: int, *, segments: int = 8) -> CompactedLog:
    """Several groups of segments with values and tombstones of few keys, in batches of many shapes."""
    log, random = CompactedLog(replace(CONFIG, segment_bytes=400)), Random(seed)
    for number in range(segments * 3):
        pairs = [
            (random.choice(KEYS), None if random.random() < 0.3 else b"%d" % number)
            for _ in range(random.randint(1, 4))
        ]
        log.append(*pairs, codec=random.choice(list(Codec)))
        if number % 3 == 2:
            log.roll()
    return log


def values_of(log: PartitionLog) -> dict[bytes | None, bytes]:
    """The last value of each key, as a table built from the log would have it."""
    values = {record.key: record.value for record in records_of(log)}
    return {key: value for key, value in values.items() if value is not None}


@pytest.mark.parametrize("seed", range(3))
def test_invariant_01_offsets_and_order_never_change(seed: int) -> None:
    log = random_log(seed)
    before = log.records()

    log.clean()

    after = log.records()
    assert after == [record for record in before if record in after] != before
    assert values_of(log.log) == {
        key: value for key, value in {r.key: r.value for r in before}.items() if value is not None
    }
    for offset in range(log.log.log_start_offset, log.log.log_end_offset + 1):
        assert log.records(offset) == [record for record in after if record.offset >= offset]


@pytest.mark.parametrize("timestamp_type", TimestampType)
def test_invariant_02_a_rewritten_batch_keeps_what_its_header_says(
    timestamp_type: TimestampType,
) -> None:
    log = CompactedLog()
    records = [
        Record(offset=number, timestamp=5000 + number, key=key, value=b"1")
        for number, key in enumerate((b"dead", b"alive", b"dead"))
    ]
    batch = build_batch(
        records, timestamp_type=timestamp_type, producer_id=7, producer_epoch=3, base_sequence=40
    )
    log.append((b"first", b"1"))
    log.append_batch(valid(batch))
    log.append((b"dead", b"2"))
    before = log.headers()[1]

    log.clean()

    after = log.headers()[1]
    assert after.record_count == 1
    same = "base_offset last_offset leader_epoch producer_id producer_epoch base_sequence"
    same += " last_sequence timestamp_type attributes base_timestamp"
    assert [getattr(after, name) for name in same.split()] == [
        getattr(before, name) for name in same.split()
    ]
    assert after.max_timestamp == (5001 if timestamp_type is TimestampType.CREATE_TIME else 5002)


def test_invariant_03_nothing_is_cleaned_past_the_least_of_the_upper_bounds() -> None:
    log = CompactedLog(replace(CONFIG, min_compaction_lag_ms=1000))
    log.append_segment((b"a", b"1"), (b"a", b"2"))
    log.now_ms += 1000
    log.append_segment((b"a", b"3"), (b"a", b"4"))
    assert log.plan().end_offset == 2
    assert log.assess(requested=True).bounds.limited_by is Blocker.MIN_LAG
    log.now_ms += 1000
    log.append((b"a", b"5"), (b"a", b"6"))
    assert log.plan().end_offset == 4
    assert log.assess(requested=True).bounds.limited_by is Blocker.ACTIVE_SEGMENT
    log.now_ms += 1000
    log.log.append_as_leader(valid(batch_of([(b"a", b"7")])), now_ms=log.now_ms - 1000)
    log.roll()
    assert log.plan().end_offset == 6
    assert log.assess(requested=True).bounds.limited_by is Blocker.HIGH_WATERMARK

    log.execute(log.plan())
    log.make_durable()

    assert log.pairs() == [(5, b"a", b"6"), (6, b"a", b"7")]


def test_invariant_04_the_log_start_does_not_move_because_of_compaction() -> None:
    log = CompactedLog(EACH_SEGMENT_ITS_GROUP)
    for number in range(4):
        log.append_segment((b"a", b"%d" % number))

    log.clean_until_idle()
    log.reopen(is_clean=False)

    assert log.log.log_start_offset == 0
    assert log.pairs() == log.pairs() == [(3, b"a", b"3")]
    assert read_bytes(log.log, 0)


def test_invariant_05_the_batch_that_ends_at_the_high_watermark_keeps_its_last_record() -> None:
    log = CompactedLog()
    log.append((b"a", b"1"), (b"b", b"1"))
    log.append((b"b", None), (b"a", None))
    log.clean()
    log.now_ms += RETENTION_MS

    log.clean()

    assert log.pairs() == [(3, b"a", None)]
    assert headers_in(read_bytes(log.log, 0))[-1].next_offset == log.log.high_watermark


def test_invariant_06_the_last_batch_of_each_active_producer_stays_if_need_be_empty() -> None:
    log = CompactedLog()
    for producer, sequence in ((1, 0), (2, 0), (1, 1), (2, 1)):
        key = b"%d" % producer
        log.append((key, b"1"), producer_id=producer, producer_epoch=0, base_sequence=sequence)
    log.append((b"1", b"2"), (b"2", b"2"))

    log.clean()
    log.reopen(is_clean=False)

    empty = [header for header in log.headers() if header.record_count == 0]
    assert [(each.producer_id, each.last_sequence) for each in empty] == [(1, 1), (2, 1)]
    for producer in (1, 2):
        key = b"%d" % producer
        assert log.append(
            (key, b"1"), producer_id=producer, producer_epoch=0, base_sequence=1
        ).duplicate
    log.append((b"1", b"3"), producer_id=1, producer_epoch=0, base_sequence=2)
    log.clean()
    assert [each.producer_id for each in log.headers() if each.record_count == 0] == [2]


def markers(log: CompactedLog) -> list[int]:
    return [header.base_offset for header in log.headers() if header.is_control]


def test_invariant_06_the_marker_of_a_producer_without_data_stays_for_its_epoch() -> None:
    log = CompactedLog()
    producer = TransactionalProducer(log, 1)
    producer.commit()
    producer.abort()
    log.append((b"a", b"1"))

    for _ in range(3):
        log.clean()
        log.now_ms += RETENTION_MS
        log.append((b"a", b"2"))

    # Both, because both are of its epoch.
    assert markers(log) == [0, 1]
    log.append((b"b", b"1"), producer_id=1, producer_epoch=0, base_sequence=0)
    log.clean()
    assert markers(log) == []


def test_invariant_07_control_batches_are_never_deduplicated_and_never_in_the_map() -> None:
    """KAFKA-14055: a user's key may be the bytes of a marker's."""
    log = CompactedLog()
    for number in (7, 8):
        producer = TransactionalProducer(log, number)
        producer.send((b"%d" % number, b"1"))
        producer.commit()
    commit_key = struct.pack(">hh", 0, 1)
    log.append((commit_key, b"of a user"))
    log.append((b"last", b"1"))

    log.clean()

    assert markers(log) == [1, 3]
    assert (4, commit_key, b"of a user") in log.pairs()


def test_invariant_08_aborted_data_goes_at_once_and_supersedes_nothing() -> None:
    log = CompactedLog()
    one, two = TransactionalProducer(log, 1), TransactionalProducer(log, 2)
    one.send((b"a", b"committed"), (b"b", b"committed"))
    one.commit()
    two.send((b"a", b"aborted"), (b"only aborted", b"1"))
    two.abort()
    log.append((b"last", b"1"))

    report = log.clean()

    data = [pair for pair in log.pairs() if pair[0] not in markers(log)]
    assert data == [(0, b"a", b"committed"), (1, b"b", b"committed"), (6, b"last", b"1")]
    assert report.records_by_verdict["dropped_aborted"] == 2


def test_invariant_08_nothing_undecided_is_cleaned() -> None:
    log = CompactedLog()
    log.append((b"a", b"1"))
    TransactionalProducer(log, 2).send((b"a", b"open"))
    log.append((b"a", b"2"))

    log.clean()

    assert [value for _offset, _key, value in log.pairs()] == [b"1", b"open", b"2"]
    assert log.log.clean_offset <= 1


def test_invariant_09_an_abort_marker_outlives_its_data_and_then_waits_a_horizon() -> None:
    log = CompactedLog()
    producer = TransactionalProducer(log, 2)
    producer.send((b"a", b"aborted"))
    producer.abort()
    log.append((b"b", b"1"))
    for _ in range(2):
        log.now_ms += RETENTION_MS
        log.append((b"b", b"1"))
        log.clean()
        # Empty, because the producer's sequence is in it.
        assert [header.record_count for header in log.headers()][:2] == [0, 1]
        assert log.headers()[1].delete_horizon_ms is None

    producer.send((b"c", b"1"))
    producer.commit()
    log.append((b"b", b"2"))
    log.clean()
    log.append((b"b", b"3"))
    log.clean()
    marker = log.headers()[0]
    assert (marker.base_offset, marker.is_control) == (1, True)
    assert marker.delete_horizon_ms is not None

    log.now_ms = marker.delete_horizon_ms - 1
    log.append((b"b", b"4"))
    log.clean()
    assert markers(log)[0] == 1
    log.now_ms += 1
    log.append((b"b", b"5"))
    log.clean()
    assert 1 not in markers(log)


def test_invariant_10_a_tombstones_clock_starts_once_with_its_first_clean() -> None:
    log = CompactedLog()
    log.append((b"a", b"1"))
    log.append((b"a", None))
    log.append((b"b", b"1"))
    log.now_ms += 5 * RETENTION_MS
    log.clean()
    horizon = log.now_ms + RETENTION_MS
    assert log.headers()[0].delete_horizon_ms == horizon

    for number in range(3):
        log.now_ms += RETENTION_MS // 4
        log.append((b"b", b"%d" % number))
        log.clean()
        log.reopen(is_clean=number % 2 == 0)
        assert log.headers()[0].delete_horizon_ms == horizon
        assert (1, b"a", None) in log.pairs()

    log.now_ms = horizon
    log.append((b"b", b"last"))
    log.clean()
    assert b"a" not in {key for _offset, key, _value in log.pairs()}


def test_invariant_11_no_horizon_is_stamped_beyond_what_the_map_covers() -> None:
    log = CompactedLog(settings=replace(SETTINGS, dedupe_buffer_size=24 * 16))
    log.append_segment((b"early", None), *[(b"%02d" % n, b"1") for n in range(14)], (b"00", None))

    report = log.execute(log.plan())

    assert report.is_partial
    horizons = {header.base_offset: header.delete_horizon_ms for header in log.headers()}
    assert horizons[0] is not None
    assert all(horizons[offset] is None for offset in horizons if offset >= report.end_offset)
    assert report.end_offset <= 15


def test_invariant_12_the_oldest_group_is_swapped_first_and_no_crash_brings_a_value_back() -> None:
    log = CompactedLog(EACH_SEGMENT_ITS_GROUP)
    log.append_segment((b"a", b"1"))
    log.append_segment((b"a", None))
    log.append_segment((b"b", b"1"))
    log.clean_until_idle()
    log.now_ms += RETENTION_MS
    log.append_segment((b"a", b"2"))
    log.append_segment((b"a", None))
    log.append_segment((b"b", b"2"))
    plan = log.plan()
    bases = [group[0].row.base_offset for group in plan_groups(plan, plan.end_offset, 0)]
    assert bases == sorted(bases)
    seen = []

    def crash(action: str, path: str) -> None:
        left = CompactedLog()
        left.fs, left.now_ms = log.fs.after_crash(Loss.NOTHING, Random(0)), log.now_ms
        left.log = log.log
        left.log = open_again(left)
        seen.append([segment.is_cleaned for segment in left.log.segments])
        assert b"a" not in values_of(left.log)

    log.fs.on_operation = crash
    log.execute(plan)

    assert len({tuple(each) for each in seen}) > 2


def open_again(log: CompactedLog) -> PartitionLog:
    log.reopen(is_clean=False, loss=Loss.NOTHING)
    return log.log


def test_invariant_13_each_groups_swap_is_one_atomic_commit_and_recovery_is_idempotent() -> None:
    log = CompactedLog()
    log.append_segment((b"a", b"1"), (b"b", b"1"))
    log.append_segment((b"a", b"2"), (b"b", b"2"))
    before, commits = log.pairs(), []
    found: set[tuple[object, ...]] = set()

    def crash(action: str, path: str) -> None:
        if action == "rename" and path.endswith(f"{MANIFEST}.tmp"):
            commits.append(path)
        for loss in Loss:
            left = CompactedLog()
            left.fs = log.fs.after_crash(loss, Random(len(found)))
            left.log = log.log
            once = (open_again(left), left.pairs(), sorted(left.files()))
            twice = (open_again(left), left.pairs(), sorted(left.files()))
            assert once[1] == twice[1]
            assert not [name for name in once[2] if name.endswith(".cleaned")]
            found.add(tuple(once[1]))

    log.fs.on_operation = crash
    log.execute(log.plan())

    assert len(commits) == 1
    assert found == {tuple(before), tuple(log.pairs())}


def test_invariant_14_the_clean_offset_moves_with_the_last_swap_of_a_pass() -> None:
    log = CompactedLog(EACH_SEGMENT_ITS_GROUP)
    for number in range(4):
        log.append_segment((b"a", b"%d" % number), (b"%d" % number, b"1"))
    swapped = 0

    def stop_before_the_last_swap(_seconds: float) -> bool:
        nonlocal swapped
        swapped = sum(segment.is_cleaned for segment in log.log.segments)
        assert log.log.clean_offset == 0
        return swapped == 3

    with pytest.raises(CleaningAborted):
        log.execute(log.plan(), stop=stop_before_the_last_swap)
    log.reopen(is_clean=False)
    assert (swapped, log.log.clean_offset) == (3, 0)

    log.execute(log.plan())
    assert log.log.clean_offset == 8
    log.reopen(is_clean=False)
    assert log.log.clean_offset == 8


@pytest.mark.parametrize("span", [2**31 - 2, 2**31 + 5])
def test_invariant_15_groups_and_outputs_keep_their_bounds_and_no_batch_counts_twice(
    span: int,
) -> None:
    log = CompactedLog(replace(CONFIG, segment_bytes=300))
    for number in range(9):
        if number == 5:
            log.log.advance_end(number + span)
        log.append((b"%d" % number, b"v" * 40))
        log.roll()
    plan = log.plan()
    for group in plan_groups(plan, plan.end_offset, 0):
        assert sum(segment.row.size for segment in group) <= 300 or len(group) == 1
        assert group[-1].row.end_offset - group[0].row.base_offset <= 2**31 or len(group) == 1

    report = log.execute(plan)

    assert report.records_before == report.records_after == 9
    assert len(log.pairs()) == 9
    for segment in log.log.segments:
        headers = headers_in(segment.files.open().read_at(0, segment.size))
        assert all(each.last_offset - segment.base_offset < 2**31 for each in headers)


def test_invariant_16_a_batch_larger_than_the_buffer_grows_it_and_a_lying_size_is_corruption() -> (
    None
):
    log = CompactedLog()
    big = bytes(3 * CHUNK_BYTES_MIN)
    log.append_segment((b"a", big), (b"b", b"1"), (b"a", big + b"2"))
    path, size = log.log.segments[0].path(LOG), log.log.segments[0].size
    length = log.fs.read_bytes(path)[8:12]
    log.fs.overwrite(path, 8, struct.pack(">i", size))
    with pytest.raises(CorruptBatch, match=f"batch claims {size + 12} bytes"):
        log.execute(log.plan())

    log.fs.overwrite(path, 8, length)
    log.execute(log.plan())

    assert [record.offset for record in log.records()] == [1, 2]


@pytest.mark.parametrize("is_clean", [False, True], ids=["dirty", "clean"])
def test_invariant_17_a_rotten_batch_is_neither_trusted_nor_given_a_fresh_checksum(
    is_clean: bool,
) -> None:
    log = CompactedLog()
    log.append_segment((b"a", b"1"), (b"b", b"value"))
    if is_clean:
        log.execute(log.plan())
    log.append_segment((b"a", b"2"))
    first = log.log.segments[0]
    data = first.files.open().read_at(0, first.size)
    log.fs.overwrite(first.path(LOG), data.index(b"value"), b"valve")
    rotten = first.files.open().read_at(0, first.size)

    with pytest.raises(CorruptBatch):
        log.execute(log.plan())

    assert log.log.segments[0] is first
    assert first.files.open().read_at(0, first.size) == rotten
    assert log.log.clean_offset == (2 if is_clean else 0)


def test_invariant_18_no_key_can_be_made_to_delete_another() -> None:
    """The map knows a key by 128 bits of SipHash under a secret of the log directory's."""
    assert len(siphash128(bytes(16), b"key")) == 16
    assert siphash128(bytes(16), b"key") != siphash128(bytes(15) + b"1", b"key")
    log = CompactedLog(settings=replace(SETTINGS, dedupe_buffer_size=24 * 40_000))
    keys = [struct.pack(">q", number) * (1 + number % 3) for number in range(20_000)]
    for start in range(0, len(keys), 1000):
        log.append(*[(key, b"v") for key in keys[start : start + 1000]], codec=Codec.LZ4)

    log.clean()

    assert [record.key for record in log.records()] == keys


@pytest.mark.parametrize("change", ["truncation", "deletion", "policy"])
def test_invariant_19_truncation_deletion_and_another_policy_end_a_pass_and_no_offset_lies(
    change: str,
) -> None:
    """At every step of the pass: test_races.py."""
    log = CompactedLog()
    log.append_segment((b"a", b"1"), (b"a", b"2"))
    log.execute(log.plan())
    log.append_segment((b"b", b"1"), (b"b", b"2"))
    plan = log.plan()
    match change:
        case "truncation":
            log.log.truncate_to(1)
        case "deletion":
            log.log.retire()
        case _:
            log.log.update_config(replace(CONFIG, cleanup_policy=("delete",)))
            log.log.settle()

    with pytest.raises(CleaningAborted):
        log.execute(plan)

    assert log.log.clean_offset <= log.log.log_end_offset
    if change == "truncation":
        log.append((b"a", b"3"), (b"c", b"1"))
        log.append((b"a", b"4"))
        log.clean()
        assert [(key, value) for _offset, key, value in log.pairs()] == [(b"c", b"1"), (b"a", b"4")]


def test_invariant_20_the_clock_rolls_an_idle_segment_and_retires_tombstones() -> None:
    log = CompactedLog(replace(CONFIG, max_compaction_lag_ms=5000, min_cleanable_dirty_ratio=1.0))
    log.append((b"a", b"1"))
    log.append((b"a", None))
    log.append((b"b", b"1"))
    assert not log.log.roll_if_due(log.now_ms + 4999)
    assert log.clean_until_idle() == 0

    log.now_ms += 5000
    assert log.log.roll_if_due(log.now_ms)
    assert log.assess().reason is Reason.DEADLINE
    log.clean_until_idle()
    assert log.pairs() == [(1, b"a", None), (2, b"b", b"1")]

    log.now_ms += RETENTION_MS
    assert log.assess().reason is Reason.TOMBSTONES_DUE
    log.clean_until_idle()
    assert log.pairs() == [(2, b"b", b"1")]


class WallClock:
    """Real time."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


async def test_invariant_21_a_failure_rests_one_partition_with_its_reason_and_no_worker_dies() -> (
    None
):
    log = CompactedLog()
    log.append_segment((b"a", b"1"), (b"a", b"2"))
    # So often does the disk fail; then it is sound again.
    log.fs.faults.fail("read", errno.EIO, path=LOG, times=2)
    settings = replace(SETTINGS, backoff_ms=5, retry_backoff_ms=20, retry_backoff_max_ms=20)
    reasons = set()

    pool = CleanerPool(lambda: [log.log], settings, clock=WallClock(), probe=SilentProbe())
    pool.start()
    try:
        async with asyncio.timeout(20):
            while log.log.clean_offset < 2:
                reasons |= {each.reason for each in pool.status().quarantined}
                await asyncio.sleep(0.001)
            while pool.status().quarantined:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
    finally:
        await pool.stop()

    assert len(reasons) == 1
    assert "errno 5" in reasons.pop()
    assert log.pairs() == [(1, b"a", b"2")]


def test_invariant_22_a_lookup_by_time_falls_through_segments_of_empty_batches() -> None:
    """More in tests/storage/test_timestamp_lookup.py."""
    log = CompactedLog(EACH_SEGMENT_ITS_GROUP)
    for number, timestamp in enumerate((9000, 5000, 6000)):
        log.append_batch(
            valid(
                batch_of(
                    [(b"a" if number < 2 else b"b", b"1")],
                    timestamps=[timestamp],
                    producer_id=number,
                    producer_epoch=0,
                    base_sequence=0,
                )
            )
        )
        log.roll()

    log.execute(log.plan())

    assert [header.record_count for header in log.headers()] == [0, 1, 1]
    found = [log.log.offset_for_timestamp(timestamp) for timestamp in (4000, 5500, 6001)]
    assert [each and each.offset for each in found] == [1, 2, None]


def test_invariant_23_the_throttle_counts_both_ways_and_its_sleep_holds_no_lock() -> None:
    log = CompactedLog(EACH_SEGMENT_ITS_GROUP)
    for number in range(4):
        log.append_segment((b"a", b"%d" % number), (b"%d" % number, b"1"))
    plan = log.plan()
    seconds = 0.0

    def sleep(nap: float) -> bool:
        """While the pass sleeps the log takes appends, rolls, commits and looks."""
        nonlocal seconds
        if nap:
            seconds += nap
            log.append((b"new", b"1"))
            log.roll()
            log.log.settle()
            log.log.cleaning_view()
        return False

    meter = PassMeter(
        throttle=Throttle(IoRates(total=1000.0), clock=lambda: seconds),
        probe=SilentProbe(),
        sleep=sleep,
        is_stale=lambda: False,
    )
    clean(log.log, plan, log.settings, meter=meter, monotonic=lambda: 0.0)

    assert meter.bytes_written > 0
    assert meter.bytes_read + meter.bytes_written == pytest.approx(1000 * seconds, rel=0.3)


def test_invariant_23_an_abort_does_not_wait_for_the_throttle() -> None:
    log = CompactedLog()
    log.append_segment((b"a", b"1"), (b"a", b"2"))
    naps: list[float] = []

    def stop_during_the_first_nap(nap: float) -> bool:
        naps.append(nap)
        return nap > 0

    meter = PassMeter(
        throttle=Throttle(IoRates(total=1e-6), clock=lambda: 0.0),
        probe=SilentProbe(),
        sleep=stop_during_the_first_nap,
        is_stale=lambda: len(naps) > 1,
    )
    with pytest.raises(CleaningAborted):
        clean(log.log, log.plan(), log.settings, meter=meter, monotonic=lambda: 0.0)

    assert len([nap for nap in naps if nap]) == 1


def test_invariant_24_unchanged_batches_are_copied_byte_for_byte() -> None:
    log = CompactedLog()
    log.append((b"a", b"1" * 100), (b"b", b"1" * 100), codec=Codec.ZSTD)
    log.append((b"c", b"1"), (b"d", b"1"))
    log.append((b"c", b"2"))
    batch = read_bytes(log.log, 0)[: log.headers()[0].size_bytes]

    log.clean()

    assert read_bytes(log.log, 0)[: len(batch)] == batch


def test_invariant_24_unchanged_segments_are_not_touched() -> None:
    log = CompactedLog(EACH_SEGMENT_ITS_GROUP)
    log.append((b"a", b"1" * 100), (b"b", b"1" * 100), codec=Codec.ZSTD)
    for pair in ((b"c", b"1"), (b"c", b"2"), (b"d", None), (b"e", b"1")):
        log.append(pair)
    log.clean()
    before = log.log.segments

    log.now_ms += RETENTION_MS
    log.append((b"e", b"2"))
    log.clean()

    kept = [segment.base_offset for segment in log.log.segments if segment in before]
    assert kept == [0, 2, 3]
    assert log.pairs() == [
        (0, b"a", b"1" * 100),
        (1, b"b", b"1" * 100),
        (3, b"c", b"2"),
        (6, b"e", b"2"),
    ]
