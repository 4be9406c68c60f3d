"""Appends of leaders and followers, and the rolls that they cause."""

from __future__ import annotations

import dataclasses
import errno
from random import Random

import pytest

from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Epoch, Offset
from storage.batches.validate import Refused
from storage.files.errors import NoSpace
from storage.formats.config_property import LONG_MAX
from storage.log.appender import Appended
from storage.log.opening import create_log
from tests.harness.log_builder import batch_of, run_of, valid
from tests.harness.log_calls import append, fetch, home_of, publish
from tests.harness.log_home import Deferred, LogHome, read_all
from tests.harness.memory_fs import Loss, MemoryFileSystem

DAY_MS = 24 * 3600 * 1000


def test_offsets_are_dense_and_batches_carry_the_leader_epoch() -> None:
    log = home_of().create(epoch=5)
    assert append(log, (b"a", b"1"), (b"b", b"2")) == Appended(Offset(0), Offset(2))
    assert append(log) == Appended(Offset(2), Offset(3))
    publish(log)
    assert [record.offset for record in read_all(log)] == [0, 1, 2]
    assert log.reader.end_offset_for_epoch(Epoch(5)) == (5, 3)


def test_duplicate_of_an_idempotent_batch_is_answered_and_not_written() -> None:
    log = home_of().create()

    def send(sequence: int) -> Appended | Refused:
        batch = batch_of(
            [(b"k", b"v")] * 2, producer_id=9, producer_epoch=0, base_sequence=sequence
        )
        return log.appender.append_as_leader(valid(batch), now_ms=0)

    assert send(0) == Appended(Offset(0), Offset(2))
    assert send(2) == Appended(Offset(2), Offset(4))
    assert send(0) == Appended(Offset(0), Offset(2), duplicate=True)
    gap = send(6)
    assert isinstance(gap, Refused)
    assert gap.error_code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.log_end_offset == 4


def test_follower_keeps_offsets_and_may_leave_gaps_but_not_go_back() -> None:
    log = home_of().create()
    batch = batch_of([(b"k", b"v")], base_offset=10, leader_epoch=3)
    assert log.appender.append_as_follower(run_of(batch), now_ms=0) == Appended(
        Offset(10), Offset(11)
    )
    with pytest.raises(ValueError, match="offset 10 is below 11"):
        log.appender.append_as_follower(run_of(batch), now_ms=0)
    publish(log)
    assert fetch(log, 0) == [10]
    assert log.reader.end_offset_for_epoch(Epoch(3)) == (3, 11)


def test_follower_takes_the_epochs_of_its_leader_over_appends_gaps_rolls_and_a_crash() -> None:
    home = home_of()
    log = home.create(epoch=9)
    pairs = [(b"k", bytes(300))]
    for offset, epoch in ((0, 2), (1, 2), (4, 2), (5, 5), (7, 5), (8, 6)):
        run = run_of(batch_of(pairs, base_offset=offset, leader_epoch=epoch))
        appended = log.appender.append_as_follower(run, now_ms=0)
        assert appended == Appended(Offset(offset), Offset(offset + 1))
    assert len(log.segments) > 2
    publish(log)
    left = LogHome(home.fs.after_crash(Loss.EVERYTHING, Random(0)))  # type: ignore[attr-defined]
    for each in (log, left.open(epoch=10)):
        assert each.epochs.entries == ((2, 0), (5, 5), (6, 8))
        assert each.reader.leader_epoch_at(Offset(4)) == 2


def test_gap_before_a_followers_batch_is_of_the_batches_epoch_not_of_its_own() -> None:
    log = home_of().create(epoch=9)
    far = batch_of([(b"k", b"v")], base_offset=5 << 31, leader_epoch=3)
    log.appender.append_as_follower(run_of(far), now_ms=0)
    assert log.epochs.entries == ((3, 0),)


def test_advanced_end_is_as_durable_as_records_and_no_reader_is_sent_the_gap() -> None:
    home = home_of()
    log = home.create(epoch=9)
    append(log)
    log.appender.advance_end(Offset(40))
    log.appender.advance_end(Offset(30))
    assert (log.log_end_offset, log.high_watermark) == (40, 0)
    publish(log)
    assert fetch(log, 1) == []
    append(log)
    publish(log)
    assert fetch(log, 1) == [40]
    left = LogHome(home.fs.after_crash(Loss.EVERYTHING, Random(0)))  # type: ignore[attr-defined]
    assert left.open().log_end_offset == 41


def test_full_disk_refuses_the_append_and_the_log_goes_on() -> None:
    home = home_of()
    log = home.create()
    append(log)
    home.fs.faults.fail("append to", errno.ENOSPC)  # type: ignore[attr-defined]
    with pytest.raises(NoSpace):
        append(log)
    assert append(log) == Appended(Offset(1), Offset(2))
    publish(log)
    assert fetch(log, 0) == [0, 1]


def test_idempotent_batch_that_failed_to_be_written_may_be_sent_again() -> None:
    home = home_of()
    log = home.create()
    batch = batch_of([(b"k", b"v")], producer_id=9, producer_epoch=0, base_sequence=0)
    home.fs.faults.fail("append to", errno.ENOSPC)  # type: ignore[attr-defined]
    with pytest.raises(NoSpace):
        log.appender.append_as_leader(valid(batch), now_ms=0)
    assert log.appender.append_as_leader(valid(batch), now_ms=0) == Appended(Offset(0), Offset(1))


def test_offsets_far_beyond_an_empty_log_are_taken() -> None:
    log = home_of(index_interval_bytes=0).create()
    far = 5 << 31
    for number in range(3):
        batch = batch_of([(b"k", b"v")], base_offset=far + number)
        assert log.appender.append_as_follower(run_of(batch), now_ms=0).base_offset == far + number
    publish(log)
    assert fetch(log, 0)[0] == far
    assert log.log_end_offset == far + 3


# ---------------------------------------------------------------------- roll


def test_segment_rolls_before_the_batch_that_would_exceed_segment_bytes() -> None:
    log = home_of(segment_bytes=200).create()
    for _ in range(4):
        append(log, (b"k", bytes(20)))
    assert [segment.base_offset for segment in log.segments] == [0, 2]
    assert all(segment.size <= 200 for segment in log.segments)


def test_batch_larger_than_a_segment_gets_one_of_its_own() -> None:
    log = home_of(segment_bytes=200).create()
    append(log, (b"k", bytes(500)))
    append(log)
    assert [segment.base_offset for segment in log.segments] == [0, 1]


def test_idle_segment_rolls_by_the_clock_and_no_offset_changes() -> None:
    log = home_of(segment_ms=DAY_MS).create()
    append(log, now_ms=1000)
    append(log, now_ms=2000)
    assert not log.roll_if_due(1000 + DAY_MS - 1)
    assert log.roll_if_due(1000 + DAY_MS)
    assert [segment.base_offset for segment in log.segments] == [0, 2]
    assert log.log_end_offset == 2
    assert not log.roll_if_due(1000 + 9 * DAY_MS), "an empty segment never rolls"


def test_a_part_of_the_jitter_is_taken_off_the_roll_time_and_follows_the_configuration() -> None:
    home = home_of(segment_ms=1000)
    opening = home.opening(epoch=1, is_clean=False, now_ms=0)
    log = create_log(home.fs, home.identity, home.config, opening, jitter=0.5)
    append(log, now_ms=0)
    assert not log.roll_if_due(999)
    log.update_config(dataclasses.replace(home.config, segment_jitter_ms=200))
    assert not log.roll_if_due(899)
    assert log.roll_if_due(900)


def test_append_rolls_an_old_segment_by_wall_time_not_by_timestamps() -> None:
    log = home_of(segment_ms=DAY_MS).create()
    log.appender.append_as_leader(valid(batch_of([(b"k", b"v")], timestamps=[1 << 50])), now_ms=0)
    append(log, now_ms=DAY_MS - 1)
    append(log, now_ms=DAY_MS)
    assert [segment.base_offset for segment in log.segments] == [0, 2]


@pytest.mark.parametrize(
    ("policy", "rolls"), [(("compact",), True), (("delete",), False), (("compact", "delete"), True)]
)
def test_max_compaction_lag_rolls_a_compacted_log(policy: tuple[str, ...], rolls: bool) -> None:
    log = home_of(cleanup_policy=policy, segment_ms=LONG_MAX, max_compaction_lag_ms=1000).create()
    append(log, now_ms=5)
    assert log.roll_if_due(1005) is rolls


def test_full_index_rolls_the_segment() -> None:
    log = home_of(segment_bytes=1 << 20, index_interval_bytes=0, segment_index_bytes=40).create()
    for _ in range(12):
        append(log)
    assert len(log.segments) > 1
    assert all(len(segment.index()) * 8 <= 40 for segment in log.segments)


def test_offsets_that_span_more_than_an_int32_roll() -> None:
    log = home_of().create()
    append(log)
    far = batch_of([(b"k", b"v")], base_offset=1 << 31)
    log.appender.append_as_follower(run_of(far), now_ms=0)
    assert [segment.base_offset for segment in log.segments] == [0, 1]
    publish(log)
    assert fetch(log, 1) == [1 << 31]


def test_roll_goes_on_in_the_new_file_before_its_background_work() -> None:
    background = Deferred(inline=False)
    home = LogHome(MemoryFileSystem(), background=background)
    log = home.create()
    append(log)
    log.roll(0)
    assert append(log) == Appended(Offset(1), Offset(2))
    publish(log)
    assert fetch(log, 0) == [0]
    assert fetch(log, 1) == [1]
    background.run_all()
    assert fetch(log, 0) == [0]
