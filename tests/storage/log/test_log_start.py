"""Retention and DeleteRecords move the log start: durably first, while every reader is served."""

from __future__ import annotations

import dataclasses
import errno
import threading
from random import Random
from typing import Any

import pytest

from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Epoch, Offset
from storage.files.errors import CorruptLog, NoSpace, SwapRefused, SyncFailed
from storage.files.paths import parse_snapshot_file
from storage.formats.log_config import LogConfig
from storage.formats.manifest import Manifest, decode, encode
from storage.log.appender import Appended
from storage.log.log import PartitionLog
from storage.log.log_start import DeletedSegment
from storage.log.retention import DeletionReason
from storage.segment.reader import Isolation, ReadResult, SegmentRegion, find_region
from tests.harness.hand_cleaning import recopied, write_cleaned
from tests.harness.log_builder import batch_of, run_of, valid
from tests.harness.log_home import SMALL, Deferred, LogHome, read_all
from tests.harness.memory_fs import Loss, MemoryFileSystem

DAY_MS = 24 * 3600 * 1000
DELETING = dataclasses.replace(SMALL, cleanup_policy=("delete",), retention_ms=7 * DAY_MS)
BOTH = dataclasses.replace(DELETING, cleanup_policy=("compact", "delete"))


def filled(home: LogHome, *, segments: int = 4) -> PartitionLog:
    """A log with one segment per day of two two-record batches; the active segment is empty."""
    log = home.create()
    for day in range(segments):
        for _ in range(2):
            pairs = [(b"k", bytes(40)), (b"l", bytes(40))]
            batch = batch_of(pairs, timestamps=[day * DAY_MS, day * DAY_MS + 1])
            assert isinstance(
                log.appender.append_as_leader(valid(batch), now_ms=day * DAY_MS), Appended
            )
        log.roll(day * DAY_MS)
    log.advance_high_watermark(log.sync())
    return log


def offsets(log: PartitionLog) -> list[int]:
    return [record.offset for record in read_all(log)]


def manifest_of(home: LogHome) -> Manifest:
    return decode(home.fs.read_bytes(f"{home.identity.directory}/manifest"), "manifest")


def segment_files(home: LogHome) -> list[str]:
    return sorted(n for n in home.fs.list(home.identity.directory) if n.endswith(".log"))


def read(log: PartitionLog, offset: int) -> ReadResult | ErrorCode:
    return log.reader.read(
        Offset(offset),
        max_bytes=1 << 20,
        whole_first_batch=True,
        isolation=Isolation.READ_UNCOMMITTED,
    )


def crashed(home: LogHome, loss: Loss = Loss.EVERYTHING) -> LogHome:
    disk = home.fs
    assert isinstance(disk, MemoryFileSystem)
    return LogHome(disk.after_crash(loss, Random(0)), config=home.config)


def test_old_segments_go_with_their_files_and_the_log_starts_behind_them() -> None:
    home = LogHome(MemoryFileSystem(), config=DELETING)
    log = filled(home)
    size = log.segments[0].size
    assert not log.retention_is_due(7 * DAY_MS)

    assert log.retention_is_due(8 * DAY_MS + 2)
    deleted = log.retain(8 * DAY_MS + 2)

    assert deleted == (DeletedSegment(DeletionReason.TIME, size),) * 2
    assert log.log_start_offset == 8
    assert offsets(log) == list(range(8, 16))
    assert [name[:20] for name in segment_files(home)] == [f"{base:020}" for base in (8, 12, 16)]
    assert manifest_of(home).log_start_offset == 8
    assert not log.retention_is_due(8 * DAY_MS + 2)
    assert log.retain(8 * DAY_MS + 2) == ()


def test_an_old_active_segment_is_rolled_first_and_the_log_is_then_empty() -> None:
    home = LogHome(MemoryFileSystem(), config=DELETING)
    log = filled(home, segments=1)
    log.appender.append_as_leader(valid(batch_of([(b"k", b"v")])), now_ms=DAY_MS)
    log.advance_high_watermark(log.sync())

    assert log.retention_is_due(30 * DAY_MS)
    assert len(log.retain(30 * DAY_MS)) == 2

    assert (log.log_start_offset, log.log_end_offset) == (5, 5)
    assert offsets(log) == []
    assert not log.retention_is_due(60 * DAY_MS), "an empty segment stays"
    assert log.appender.append_as_leader(valid(batch_of([(b"k", b"v")])), now_ms=0) == Appended(
        Offset(5), Offset(6)
    )


def test_what_is_not_below_the_high_watermark_stays_however_old_it_is() -> None:
    home = LogHome(MemoryFileSystem(), config=DELETING)
    log = filled(home, segments=2)
    log.appender.append_as_leader(valid(batch_of([(b"k", b"v")])), now_ms=0)

    assert log.retention_is_due(90 * DAY_MS)
    assert len(log.retain(90 * DAY_MS)) == 2

    assert log.log_start_offset == log.high_watermark == 8
    assert log.log_end_offset == 9


def test_retention_by_size_counts_all_segments() -> None:
    config = dataclasses.replace(DELETING, retention_bytes=0, retention_ms=-1)
    log = filled(LogHome(MemoryFileSystem(), config=config))
    size = log.segments[0].size
    log.update_config(dataclasses.replace(config, retention_bytes=2 * size))
    assert log.retention_is_due(0)
    assert log.retain(0) == (DeletedSegment(DeletionReason.SIZE, size),) * 2
    assert log.log_start_offset == 8


def test_a_new_policy_starts_and_stops_retention() -> None:
    log = filled(LogHome(MemoryFileSystem(), config=SMALL))
    for policy in (("compact",), ()):
        log.update_config(dataclasses.replace(DELETING, cleanup_policy=policy))
        assert not log.retention_is_due(90 * DAY_MS)
        assert log.retain(90 * DAY_MS) == ()
    log.update_config(BOTH)
    assert log.retention_is_due(90 * DAY_MS)
    assert len(log.retain(90 * DAY_MS)) == 4


def test_settling_waits_for_a_commit_from_before_the_change() -> None:
    home = LogHome(MemoryFileSystem(), config=DELETING)
    log = filled(home)
    disk = home.fs
    assert isinstance(disk, MemoryFileSystem)
    starts: list[int] = []

    def settle() -> None:
        log.wait_for_commit()
        starts.append(log.log_start_offset)

    settling = threading.Thread(target=settle)

    def change(_action: str, _path: str) -> None:
        disk.on_operation = None
        log.update_config(SMALL)
        settling.start()
        settling.join(0.05)

    disk.on_operation = change
    log.retain(90 * DAY_MS)
    settling.join()
    assert starts == [16], "what was decided by the old policy is done by then"


# DeleteRecords.


@pytest.mark.parametrize("policy", [(), ("delete",), ("compact", "delete")])
def test_deleted_records_are_not_read_any_more_and_whole_segments_of_them_go(
    policy: tuple[str, ...],
) -> None:
    home = LogHome(MemoryFileSystem(), config=dataclasses.replace(DELETING, cleanup_policy=policy))
    log = filled(home)

    assert log.delete_records(Offset(6)) == (
        DeletedSegment(DeletionReason.LOG_START, log.segments[0].size),
    )

    assert log.log_start_offset == 6
    assert offsets(log) == list(range(6, 16))
    assert read(log, 5) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.clean_offset == 6
    recovered = crashed(home).open()
    assert recovered.log_start_offset == 6
    assert offsets(recovered) == list(range(6, 16))


def test_the_log_start_never_goes_back_and_never_passes_the_high_watermark() -> None:
    log = filled(LogHome(MemoryFileSystem(), config=DELETING))
    log.appender.append_as_leader(valid(batch_of([(b"k", b"v")])), now_ms=0)
    log.delete_records(Offset(9))
    for offset in (0, 8, 9):
        assert log.delete_records(Offset(offset)) == ()
    assert log.delete_records(Offset(17)) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.delete_records(Offset(-2)) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.log_start_offset == 9
    assert isinstance(log.delete_records(Offset(16)), tuple)
    assert log.log_start_offset == log.high_watermark == 16


def test_a_log_start_in_the_active_segment_is_never_past_the_end_after_a_crash() -> None:
    """With flush.on.acks.all=false the high watermark is ahead of the synced offset."""
    home = LogHome(MemoryFileSystem(), config=DELETING)
    log = filled(home, segments=1)
    log.appender.append_as_leader(valid(batch_of([(b"k", b"v")] * 3)), now_ms=0)
    log.advance_high_watermark(log.log_end_offset)

    log.delete_records(Offset(6))

    recovered = crashed(home).open()
    assert (recovered.log_start_offset, recovered.log_end_offset) == (6, 7)
    assert offsets(recovered) == [6]


def test_segments_below_a_log_start_go_later_where_they_could_not_go_then() -> None:
    """The active segment stays until it has rolled, as in Kafka."""
    log = filled(LogHome(MemoryFileSystem(), config=SMALL), segments=1)
    log.appender.append_as_leader(valid(batch_of([(b"k", b"v")])), now_ms=0)
    log.advance_high_watermark(log.sync())
    log.delete_records(Offset(5))
    assert len(log.segments) == 1
    assert not log.retention_is_due(90 * DAY_MS)

    log.roll(0)
    assert log.retention_is_due(0)
    assert [each.reason for each in log.retain(0)] == [DeletionReason.LOG_START]
    assert len(log.segments) == 1


# Readers.


def test_a_reader_keeps_the_files_it_is_sent_from_until_it_lets_go() -> None:
    home = LogHome(MemoryFileSystem(), config=DELETING)
    log = filled(home)
    result = read(log, 0)
    assert isinstance(result, ReadResult)
    (region,) = result.regions

    log.retain(90 * DAY_MS)

    assert len(region.read_bytes()) == region.size
    assert [name[:20] for name in segment_files(home)] == [f"{base:020}" for base in (0, 16)]
    region.release()
    assert [name[:20] for name in segment_files(home)] == [f"{16:020}"]


def test_a_file_that_a_reader_held_in_a_crash_does_not_come_back() -> None:
    home = LogHome(MemoryFileSystem(), config=DELETING)
    log = filled(home)
    assert isinstance(read(log, 0), ReadResult)
    log.retain(8 * DAY_MS + 2)

    again = crashed(home, Loss.NOTHING)
    recovered = again.open()

    assert recovered.log_start_offset == 8
    assert offsets(recovered) == list(range(8, 16))
    assert len(segment_files(again)) == 3


def test_a_read_that_retention_overtakes_is_out_of_range_and_skips_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = filled(LogHome(MemoryFileSystem(), config=DELETING))

    def overtaken(*args: Any, **settings: Any) -> SegmentRegion | None:
        log.retain(8 * DAY_MS + 2)
        return find_region(*args, **settings)

    monkeypatch.setattr("storage.log.reader.find_region", overtaken)
    assert read(log, 1) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert isinstance(read(log, 8), ReadResult)


# The cleaner.


def test_a_pass_whose_sources_were_deleted_is_refused_and_brings_nothing_back() -> None:
    home = LogHome(MemoryFileSystem(), config=BOTH)
    log = filled(home)
    view = log.cleaning_view()
    sources = view.segments[:3]
    batches, _ = recopied(sources, lambda _: True, ())
    cleaned = write_cleaned(log, sources, batches, cut=9)

    log.retain(8 * DAY_MS + 2)
    with pytest.raises(SwapRefused):
        log.cleaning.swap(
            [each.row for each in sources],
            cleaned,
            generation=view.generation,
            clean_offset=sources[-1].row.end_offset,
        )

    assert offsets(log) == list(range(8, 16))
    recovered = crashed(home).open()
    assert (recovered.log_start_offset, offsets(recovered)) == (8, list(range(8, 16)))


def test_a_pass_over_segments_that_are_still_there_is_taken() -> None:
    log = filled(LogHome(MemoryFileSystem(), config=BOTH))
    view = log.cleaning_view()
    sources = view.segments[2:3]
    batches, dropped = recopied(sources, lambda record: record.offset != 8, ())
    cleaned = write_cleaned(log, sources, batches, cut=9)
    log.retain(8 * DAY_MS + 2)

    log.cleaning.swap(
        [each.row for each in sources], cleaned, generation=view.generation, clean_offset=Offset(2)
    )

    assert dropped == {8}
    assert offsets(log) == list(range(9, 16))
    assert log.clean_offset == 8, "never below the log start"
    assert log.cleaning_view().clean_offset == 8


# State that goes with the records.


def test_epochs_below_the_log_start_are_forgotten_as_kafka_does() -> None:
    """LeaderEpochFileCache.truncateFromStart: the epoch of the log start begins there."""
    home = LogHome(MemoryFileSystem(), config=DELETING)
    log = home.create(epoch=1)
    for epoch in (1, 2, 3):
        log.appender.append_as_follower(
            run_of(batch_of([(b"k", b"v")] * 4, base_offset=4 * epoch, leader_epoch=epoch)),
            now_ms=0,
        )
    log.advance_high_watermark(log.sync())

    log.delete_records(Offset(9))

    assert log.epochs.entries == ((2, 9), (3, 12))
    assert log.reader.end_offset_for_epoch(Epoch(1)) == (1, 9)
    assert crashed(home).open(epoch=4).epochs.entries == ((2, 9), (3, 12))
    log.close()
    assert crashed(home).open(epoch=4, is_clean=True).epochs.entries == ((2, 9), (3, 12))


def test_what_was_never_read_is_read_before_the_segments_go_that_may_have_to_tell_it() -> None:
    home = LogHome(MemoryFileSystem(), config=DELETING)
    log = home.create()
    batch = batch_of([(b"k", b"v")], producer_id=9, producer_epoch=0, base_sequence=0)
    log.appender.append_as_leader(valid(batch), now_ms=0)
    log.advance_high_watermark(log.sync())
    log.roll(0)
    log.close()
    left = crashed(home)
    for name in left.fs.list(home.identity.directory):
        if name.endswith(".snapshot") or name == "leader-epoch-checkpoint":
            left.fs.write_bytes(f"{home.identity.directory}/{name}", b"damaged")

    log = left.open(is_clean=True)
    assert len(log.retain(90 * DAY_MS)) == 1

    follows = batch_of([(b"k", b"v")], producer_id=9, producer_epoch=0, base_sequence=1)
    assert log.appender.append_as_leader(valid(follows), now_ms=0) == Appended(Offset(1), Offset(2))
    assert log.epochs.entries == ((1, 1), (2, 1)) or log.epochs.entries == ((2, 1),)


def test_a_log_that_ends_below_its_start_is_damaged_and_left_alone() -> None:
    home = LogHome(MemoryFileSystem(), config=DELETING)
    log = filled(home, segments=1)
    log.appender.append_as_leader(valid(batch_of([(b"k", b"v")] * 3)), now_ms=0)
    log.advance_high_watermark(log.sync())
    log.delete_records(Offset(6))
    active = f"{home.identity.directory}/{segment_files(home)[-1]}"
    home.fs.write_bytes(active, home.fs.read_bytes(active)[:-1])
    before = home.fs.read_bytes(active)

    with pytest.raises(CorruptLog, match="below the log start"):
        home.open()

    assert home.fs.read_bytes(active) == before


def test_producers_are_remembered_over_a_crash_though_their_batches_are_gone() -> None:
    home = LogHome(MemoryFileSystem(), config=DELETING)
    log = home.create()
    for sequence in range(4):
        batch = batch_of([(b"k", b"v")], producer_id=9, producer_epoch=0, base_sequence=sequence)
        log.appender.append_as_leader(valid(batch), now_ms=0)
        log.roll(0)
    log.advance_high_watermark(log.sync())
    assert log.retention_is_due(90 * DAY_MS)
    log.retain(90 * DAY_MS)

    names = map(parse_snapshot_file, home.fs.list(home.identity.directory))
    assert [offset for offset in names if offset is not None] == [4], "no use for older ones"
    recovered = crashed(home).open()
    follows = batch_of([(b"k", b"v")], producer_id=9, producer_epoch=0, base_sequence=4)
    assert recovered.appender.append_as_leader(valid(follows), now_ms=0) == Appended(
        Offset(4), Offset(5)
    )


# The disk.


def test_a_full_disk_does_not_stop_retention_because_indexes_make_room() -> None:
    disk = MemoryFileSystem()
    home = LogHome(disk, config=DELETING)
    log = filled(home)
    needed = len(
        encode(dataclasses.replace(manifest_of(home), segments=manifest_of(home).segments[2:]))
    )
    disk.faults.space = needed - 1

    assert len(log.retain(8 * DAY_MS + 2)) == 2

    assert disk.faults.raised == 1
    assert (log.log_start_offset, offsets(log)) == (8, list(range(8, 16)))
    assert not home.failures


def test_a_disk_that_stays_full_puts_retention_off_and_nothing_has_changed() -> None:
    disk = MemoryFileSystem()
    log = filled(LogHome(disk, config=DELETING))
    disk.faults.space = 0
    with pytest.raises(NoSpace):
        log.retain(90 * DAY_MS)
    assert (log.log_start_offset, offsets(log)) == (0, list(range(16)))
    assert log.offline_reason is None
    disk.faults.heal()
    assert len(log.retain(90 * DAY_MS)) == 4


def test_a_disk_that_fails_takes_the_directory_offline_with_the_log_start_as_it_was() -> None:
    disk = MemoryFileSystem()
    home = LogHome(disk, config=DELETING)
    log = filled(home)
    disk.faults.fail("sync", errno.EIO, path="manifest")
    with pytest.raises(SyncFailed):
        log.retain(90 * DAY_MS)
    assert log.offline_reason is not None
    assert len(home.failures) == 1
    assert log.log_start_offset == 0
    assert crashed(home).open().log_start_offset == 0


def test_no_reader_sees_a_log_start_before_it_is_on_disk() -> None:
    home = LogHome(MemoryFileSystem(), config=DELETING)
    log = filled(home)
    disk = home.fs
    assert isinstance(disk, MemoryFileSystem)
    seen: list[tuple[int, int]] = []
    disk.on_operation = lambda _action, _path: seen.append(
        (log.log_start_offset, crashed(home).open().log_start_offset)
    )
    log.retain(8 * DAY_MS + 2)
    disk.on_operation = None
    assert all(visible <= durable for visible, durable in seen)
    assert {visible for visible, _ in seen} == {0, 8}


def test_work_of_retention_waits_for_nothing_in_the_background() -> None:
    """A commit first lists the rolls that no manifest lists yet."""
    background = Deferred(inline=False)
    home = LogHome(MemoryFileSystem(), config=DELETING, background=background)
    log = filled(home)
    assert len(manifest_of(home).segments) == 1

    log.retain(8 * DAY_MS + 2)

    rows = manifest_of(home).segments
    assert [row.base_offset for row in rows] == [8, 12, 16]
    background.run_all()
    assert [row.base_offset for row in manifest_of(home).segments] == [8, 12, 16]
    assert len(segment_files(home)) == 3


def test_an_empty_policy_is_a_configuration() -> None:
    assert LogConfig.from_overrides({"cleanup.policy": ""}, LogConfig()).cleanup_policy == ()
