"""A log of a snapshot is cut back to what it had at an earlier time, or nothing is cut."""

from __future__ import annotations

import pytest

from protocol.wire.numbers import Epoch, Offset, ProducerId
from storage.files.errors import CutRefused
from storage.log.linking import LinkedLog
from storage.log.log import PartitionLog
from storage.snapshots.cut_at_time import cut_at_time, earliest_ms, end_at, obstacle
from tests.harness.compacted_log import CompactedLog
from tests.harness.kept_moment import COPY, begin_moment, link, opened_copy, values
from tests.harness.log_builder import batch_of, valid
from tests.harness.snapshot_on_disk import committed_values


@pytest.fixture
def log() -> CompactedLog:
    return CompactedLog()


def append(log: CompactedLog, *records: tuple[int, bytes]) -> None:
    """Append a batch with these times and values."""
    batch = batch_of(
        [(b"key-%b" % value[:1], value) for _, value in records],
        timestamps=[ms for ms, _ in records],
    )
    log.append_batch(valid(batch))


def copied(log: CompactedLog) -> PartitionLog:
    begin_moment(log.log)
    link(log.log)
    return opened_copy(log.fs)


def cut(log: CompactedLog, at_ms: int) -> tuple[LinkedLog, list[bytes | None]]:
    """Returns what is left of a copy, and its values; it must be as after a clean stop."""
    copy = copied(log)
    left = cut_at_time(copy, at_ms)
    copy.close()
    opened = opened_copy(log.fs, is_cut=True)
    assert (opened.log_start_offset, opened.log_end_offset) == (left.start_offset, left.end_offset)
    assert opened.size_bytes == left.size_bytes
    return left, values(opened)


def test_batches_from_the_time_on_go(log: CompactedLog) -> None:
    for ms in (10, 20, 30):
        append(log, (ms, b"%d" % ms))
    left, its = cut(log, 20)
    assert (left.end_offset, left.last_stable_offset, its) == (1, 1, [b"10"])
    # The log itself has all of them.
    assert values(log.log) == [b"10", b"20", b"30"]


def test_a_batch_goes_as_a_whole_and_what_is_late_goes_with_it(log: CompactedLog) -> None:
    append(log, (10, b"a"))
    append(log, (11, b"b"), (20, b"c"))
    append(log, (12, b"late"))
    assert cut(log, 20)[1] == [b"a"]


@pytest.mark.parametrize("rolls", [False, True])
def test_all_that_is_older_stays(log: CompactedLog, *, rolls: bool) -> None:
    append(log, (10, b"a"))
    if rolls:
        log.roll()
    append(log, (20, b"b"))
    assert cut(log, 21)[1] == [b"a", b"b"]


def test_a_log_without_records_stays_empty(log: CompactedLog) -> None:
    assert cut(log, 20)[1] == []


def test_a_time_before_all_records_leaves_none(log: CompactedLog) -> None:
    append(log, (10, b"a"))
    log.roll()
    append(log, (20, b"b"))
    left, its = cut(log, 5)
    assert (left.start_offset, left.end_offset, left.size_bytes, its) == (0, 0, 0, [])


def test_files_of_segments_that_go_are_gone(log: CompactedLog) -> None:
    for ms in (10, 20, 30):
        append(log, (ms, b"%d" % ms))
        log.roll()
    cut(log, 20)
    assert {
        int(name.split("-")[0].split(".")[0]) for name in log.fs.list(COPY) if ".log" in name
    } == {
        0,
        1,
    }


def test_a_transaction_that_was_open_then_is_aborted(log: CompactedLog) -> None:
    append(log, (10, b"a"))
    batch = batch_of(
        [(b"key-t", b"t")],
        timestamps=[11],
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    log.append_batch(valid(batch))
    append(log, (12, b"b"))
    log.log.appender.append_marker(
        ProducerId(7), Epoch(0), is_commit=True, coordinator_epoch=Epoch(0), now_ms=20
    )
    log.log.advance_high_watermark(log.log.sync())
    left, its = cut(log, 20)
    # Where the log has the COMMIT, its copy has an ABORT.
    assert (its[:3], left.end_offset, left.last_stable_offset) == ([b"a", b"t", b"b"], 4, 4)
    opened = opened_copy(log.fs, is_cut=True)
    assert committed_values(opened) == [b"a", b"b"]
    assert not opened.producers.open_transactions()


def test_a_time_below_which_a_pass_has_removed_records_is_refused(log: CompactedLog) -> None:
    for ms, value in ((10, b"a1"), (20, b"a2"), (30, b"a3")):
        append(log, (ms, value))
    log.roll()
    log.clean()
    append(log, (40, b"a4"))
    copy = copied(log)
    assert (
        obstacle(copy, end_at(copy, 20))
        == "orders-0 was compacted by records up to 3, some of which came later"
    )
    with pytest.raises(CutRefused, match="compacted by records up to 3"):
        cut_at_time(copy, 20)
    assert values(copy) == [b"a3", b"a4"]
    assert earliest_ms(copy) == 31
    assert obstacle(copy, end_at(copy, 31)) is None


def test_a_time_of_which_all_was_deleted_is_refused(log: CompactedLog) -> None:
    for ms in (10, 20, 30):
        append(log, (ms, b"%d" % ms))
    log.log.delete_records(Offset(1))
    copy = copied(log)
    with pytest.raises(CutRefused, match="begins at 1: all that it had then is deleted"):
        cut_at_time(copy, 20)
    earliest = earliest_ms(copy)
    assert earliest is not None
    assert obstacle(copy, end_at(copy, earliest)) is None
