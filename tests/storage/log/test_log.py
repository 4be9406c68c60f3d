from __future__ import annotations

import dataclasses
import errno
from random import Random

import pytest

from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Offset
from storage.files.errors import DiskError, LogOffline
from storage.segment.reader import Isolation, ReadResult
from tests.harness.log_builder import batch_of, records_in, valid
from tests.harness.log_calls import append, fetch, home_of, publish
from tests.harness.log_home import Deferred, LogHome
from tests.harness.memory_fs import Loss, MemoryFileSystem

DAY_MS = 24 * 3600 * 1000


# ---------------------------------------------------------------------- durability


def test_nothing_is_served_before_it_is_durable() -> None:
    log = home_of().create()
    append(log)
    assert fetch(log, 0) == []
    publish(log)
    append(log)
    assert fetch(log, 0) == [0]
    assert (log.high_watermark, log.last_stable_offset, log.log_end_offset) == (1, 1, 2)


def test_high_watermark_never_goes_back_nor_past_the_end() -> None:
    log = home_of().create()
    append(log)
    log.advance_high_watermark(Offset(7))
    assert log.high_watermark == 1
    log.advance_high_watermark(Offset(0))
    assert log.high_watermark == 1


# ---------------------------------------------------------------------- commits of rolls


def test_failing_disk_in_the_background_takes_the_directory_offline() -> None:
    background = Deferred(inline=False)
    home = LogHome(MemoryFileSystem(), background=background)
    log = home.create()
    append(log)
    log.roll(0)
    home.fs.faults.fail("rename", errno.EIO, path="manifest.tmp")  # type: ignore[attr-defined]
    background.run_all()
    assert [type(failure) for failure in home.failures] == [DiskError]
    with pytest.raises(LogOffline, match=r"manifest\.tmp"):
        append(log)


def test_a_stop_commits_a_roll_that_an_idle_log_could_not_commit_on_a_full_disk() -> None:
    home = home_of()
    log = home.create()
    append(log)
    log.close()
    log = home.open(is_clean=True)
    # Sealing the segment writes its index.
    home.fs.faults.fail("write", errno.ENOSPC)  # type: ignore[attr-defined]
    log.roll(0)
    log.close()

    log = home.open(is_clean=True)
    assert [segment.base_offset for segment in log.segments] == [0, 1]
    append(log)
    log.roll(0)
    publish(log)
    assert [fetch(log, 0), fetch(log, 1)] == [[0], [1]]
    assert home.failures == []


def test_full_disk_puts_off_a_rolls_commit_and_nothing_is_lost() -> None:
    background = Deferred(inline=False)
    home = LogHome(MemoryFileSystem(), background=background)
    log = home.create()
    append(log)
    log.roll(0)
    home.fs.faults.fail("write", errno.ENOSPC)  # type: ignore[attr-defined]
    background.run_all()
    assert home.failures == []
    append(log)
    publish(log)
    log.roll(0)
    background.run_all()
    assert fetch(log, 0) == [0]
    assert fetch(log, 1) == [1]
    left = LogHome(home.fs.after_crash(Loss.EVERYTHING, Random(0)))  # type: ignore[attr-defined]
    recovered = left.open()
    assert [segment.base_offset for segment in recovered.segments] == [0, 1, 2]


def test_topic_deleted_while_a_roll_is_committed_is_no_failure_of_the_disk() -> None:
    disk = MemoryFileSystem()
    background = Deferred(inline=False)
    home = LogHome(disk, background=background)
    log = home.create()
    append(log)
    log.roll(0)

    def delete(action: str, _path: str) -> None:
        disk.on_operation = None
        log.retire()
        disk.rename("/data/orders", "/data/orders.deleted")
        disk.remove_tree("/data/orders.deleted")

    disk.on_operation = delete
    background.run_all()
    assert home.failures == []
    assert log.sync() == log.high_watermark


# ---------------------------------------------------------------------- read


def test_offsets_outside_of_the_log_are_out_of_range_and_its_end_is_empty() -> None:
    log = home_of().create()
    append(log)
    publish(log)
    for offset in (-1, 2):
        answer = log.reader.read(
            Offset(offset), max_bytes=1, whole_first_batch=True, isolation=Isolation.READ_COMMITTED
        )
        assert answer is ErrorCode.OFFSET_OUT_OF_RANGE
    assert fetch(log, 1) == []


def test_read_takes_whole_batches_up_to_max_bytes() -> None:
    log = home_of(segment_bytes=1 << 20).create()
    size = len(batch_of([(b"k", b"v")]))
    for _ in range(30):
        append(log)
    publish(log)
    for count in range(1, 30):
        assert fetch(log, 0, max_bytes=count * size) == list(range(count))
        assert fetch(log, 0, max_bytes=(count + 1) * size - 1) == list(range(count))
    assert fetch(log, 29, max_bytes=0) == [29]
    assert fetch(log, 29, max_bytes=size - 1, whole=False) == []


def test_read_from_inside_a_batch_gives_the_whole_batch() -> None:
    log = home_of().create()
    append(log, (b"a", b"1"), (b"b", b"2"), (b"c", b"3"))
    publish(log)
    assert fetch(log, 2) == [0, 1, 2]


def test_read_never_passes_the_high_watermark_inside_a_segment() -> None:
    log = home_of(segment_bytes=1 << 20).create()
    for _ in range(20):
        append(log)
    for watermark in range(1, 20):
        log.advance_high_watermark(Offset(watermark))
        assert fetch(log, 0) == list(range(watermark))
        assert fetch(log, watermark) == []


def test_record_beyond_the_high_watermark_is_not_found_by_time() -> None:
    log = home_of().create()
    log.appender.append_as_leader(valid(batch_of([(b"k", b"v")], timestamps=[10])), now_ms=0)
    publish(log)
    log.appender.append_as_leader(valid(batch_of([(b"k", b"v")], timestamps=[20])), now_ms=0)
    assert log.reader.offset_for_timestamp(15) is None
    youngest = log.reader.offset_of_max_timestamp()
    assert youngest is not None
    assert (youngest.timestamp, youngest.offset) == (10, 0)
    publish(log)
    found = log.reader.offset_for_timestamp(15)
    assert found is not None
    assert found.offset == 1


# ---------------------------------------------------------------------- settings, the end


def test_changed_policy_raises_the_generation_and_other_settings_do_not() -> None:
    log = home_of().create()
    before = log.generation
    log.update_config(dataclasses.replace(log.config, segment_ms=5))
    assert log.generation == before
    log.update_config(dataclasses.replace(log.config, cleanup_policy=("delete",)))
    assert log.generation == before + 1


def test_deleted_log_refuses_everything() -> None:
    log = home_of().create()
    append(log)
    log.retire()
    with pytest.raises(LogOffline, match="deleted"):
        append(log)
    with pytest.raises(LogOffline):
        fetch(log, 0)


def test_region_stays_readable_while_its_segment_is_truncated_away() -> None:
    log = home_of().create()
    append(log)
    publish(log)
    result = log.reader.read(
        Offset(0), max_bytes=1 << 20, whole_first_batch=True, isolation=Isolation.READ_UNCOMMITTED
    )
    assert isinstance(result, ReadResult)
    log.truncate_fully_and_start_at(Offset(5))
    (region,) = result.regions
    assert [record.offset for record in records_in(region.read_bytes())] == [0]
    region.release()
    region.release()


def test_stop_without_an_append_since_the_last_one_writes_nothing() -> None:
    home = home_of()
    log = home.create()
    append(log)
    log.close()
    log = home.open(is_clean=True)
    before = home.fs.operations  # type: ignore[attr-defined]
    log.close()
    assert home.fs.operations == before  # type: ignore[attr-defined]


def test_idle_producer_is_forgotten_by_the_clock() -> None:
    log = home_of().create()
    batch = batch_of([(b"k", b"v")], producer_id=9, producer_epoch=0, base_sequence=0)
    log.appender.append_as_leader(valid(batch), now_ms=1000)
    log.roll_if_due(1000 + DAY_MS)
    assert len(log.producers) == 1
    log.roll_if_due(1001 + 2 * DAY_MS)
    assert len(log.producers) == 0
