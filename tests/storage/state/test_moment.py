"""A moment of a log: taken by the first append after it, or by the snapshot."""

from __future__ import annotations

import errno

import pytest

from storage.files.errors import DiskError, LogOffline, NoSpace
from storage.formats.manifest import UNKNOWN_OFFSET
from storage.log.log import PartitionLog
from storage.state.moment import LogMoment, Moment
from tests.harness.compacted_log import CompactedLog
from tests.harness.kept_moment import begin_moment, link, opened_copy, values
from tests.harness.log_builder import batch_of, run_of
from tests.harness.open_transactions import end_transaction, in_transaction


def moment_of(log: PartitionLog) -> LogMoment:
    moment = log._list.moment
    assert moment is not None
    return moment


def segments_count(log: CompactedLog) -> int:
    return len(log.log.segments)


def test_append_takes_the_moment_before_it_writes() -> None:
    log = CompactedLog()
    log.append((b"k", b"before"))
    begin_moment(log.log)
    assert not moment_of(log.log).is_taken
    log.append((b"k", b"after"))
    taken = moment_of(log.log)
    assert (taken.end_offset, taken.last_stable_offset) == (1, 1)
    assert [each.base_offset for each in log.log.segments] == [0, 1]


def test_moment_that_is_only_prepared_is_not_taken() -> None:
    log = CompactedLog()
    log.append((b"k", b"1"))
    log.log.prepare_moment(moment := Moment())
    log.append((b"k", b"2"))
    log.log.take_moment(0)
    assert (moment_of(log.log).end_offset, segments_count(log)) == (UNKNOWN_OFFSET, 1)
    moment.has_begun = True
    log.append((b"k", b"3"))
    assert (moment_of(log.log).end_offset, segments_count(log)) == (2, 2)


def test_run_of_a_follower_takes_the_moment_too() -> None:
    log = CompactedLog()
    log.append((b"k", b"before"))
    begin_moment(log.log)
    batches = [batch_of([(b"k", b"after")], base_offset=at, leader_epoch=3) for at in (1, 2)]
    log.log.appender.append_as_follower(run_of(*batches), now_ms=0)
    assert moment_of(log.log).end_offset == 1
    log.make_durable()
    link(log.log)
    assert values(opened_copy(log.fs)) == [b"before"]


def test_gap_takes_the_moment_too() -> None:
    log = CompactedLog()
    log.append((b"k", b"before"))
    begin_moment(log.log)
    log.log.appender.advance_end(log.log.log_end_offset + 5, now_ms=0)  # type: ignore[arg-type]
    assert moment_of(log.log).end_offset == 1


def test_duplicate_takes_no_moment() -> None:
    log = CompactedLog()
    log.append((b"k", b"1"), producer_id=7, producer_epoch=0, base_sequence=0)
    begin_moment(log.log)
    again = log.append((b"k", b"1"), producer_id=7, producer_epoch=0, base_sequence=0)
    assert again.duplicate
    assert not moment_of(log.log).is_taken


def test_moment_is_taken_once() -> None:
    log = CompactedLog()
    log.append((b"k", b"1"))
    begin_moment(log.log)
    for value in (b"2", b"3"):
        log.append((b"k", value))
    log.log.take_moment(0)
    assert (moment_of(log.log).end_offset, segments_count(log)) == (1, 2)


def test_empty_active_segment_is_not_rolled() -> None:
    log = CompactedLog()
    log.append_segment((b"k", b"1"))
    begin_moment(log.log)
    log.log.take_moment(0)
    assert (moment_of(log.log).end_offset, segments_count(log)) == (1, 2)


def test_producers_are_those_of_the_moment() -> None:
    log = CompactedLog()
    in_transaction(log, 7, (b"a", b"1"))
    begin_moment(log.log)
    end_transaction(log, 7, is_commit=True)
    producers = moment_of(log.log).producers
    assert producers is not None
    assert [each.producer_id for each in producers.open_transactions()] == [7]
    assert not log.log.producers.open_transactions()


def test_pass_sees_nothing_that_was_committed_after_the_moment() -> None:
    log = CompactedLog()
    log.append((b"a", b"old"))
    in_transaction(log, 7, (b"a", b"new"))
    begin_moment(log.log)
    end_transaction(log, 7, is_commit=True)
    log.roll()
    view = log.log.cleaning_view()
    assert (view.last_stable_offset, log.log.last_stable_offset) == (1, 3)
    log.log.end_moment()
    assert log.log.cleaning_view().last_stable_offset == 3


def test_preview_of_a_pass_sees_the_whole_log() -> None:
    log = CompactedLog()
    log.append((b"a", b"1"))
    begin_moment(log.log)
    log.append((b"a", b"2"))
    assert log.log.cleaning_view().last_stable_offset == 1
    assert log.log.cleaning_view(as_if_rolled=True).last_stable_offset == 2


def test_full_disk_at_the_roll_is_the_failure_of_the_moment_not_of_the_append() -> None:
    log = CompactedLog()
    log.append((b"k", b"1"))
    begin_moment(log.log)
    log.fs.faults.fail("open", errno.ENOSPC, path=".log")
    log.append((b"k", b"2"))
    assert log.fs.faults.raised == 1
    assert isinstance(moment_of(log.log).failure, NoSpace)
    assert segments_count(log) == 1
    with pytest.raises(NoSpace):
        link(log.log)
    assert [each.value for each in log.records()] == [b"1", b"2"]
    # A later moment may be taken.
    begin_moment(log.log)
    link(log.log)
    assert values(opened_copy(log.fs)) == [b"1", b"2"]


def test_append_is_refused_if_the_disk_fails_at_the_roll() -> None:
    log = CompactedLog()
    log.append((b"k", b"1"))
    begin_moment(log.log)
    log.fs.faults.fail("open", errno.EIO, path=".log")
    with pytest.raises(LogOffline):
        log.append((b"k", b"2"))
    assert isinstance(moment_of(log.log).failure, DiskError)
    assert log.log.log_end_offset == 1
