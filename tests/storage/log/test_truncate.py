from __future__ import annotations

import errno
from random import Random

import pytest

from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Epoch, Offset, ProducerId
from storage.files.errors import DiskError, NoSpace
from storage.log.appender import Appended
from storage.log.log import PartitionLog
from storage.segment.reader import Isolation, ReadResult
from tests.harness.hand_cleaning import recopied, write_cleaned
from tests.harness.log_builder import batch_of, run_of, valid
from tests.harness.log_home import Deferred, LogHome, read_all, rolled_at
from tests.harness.memory_fs import Loss, MemoryFileSystem


def filled(home: LogHome, *, segments: int = 3) -> PartitionLog:
    """A log with segments of two batches of two records; the last segment is active and empty."""
    log = home.create()
    for _ in range(segments):
        for _ in range(2):
            pairs = [(b"k", bytes(40)), (b"l", bytes(40))]
            assert isinstance(
                log.appender.append_as_leader(valid(batch_of(pairs)), now_ms=0), Appended
            )
        log.roll(0)
    log.advance_high_watermark(log.sync())
    return log


def offsets(log: PartitionLog) -> list[int]:
    return [record.offset for record in read_all(log)]


@pytest.mark.parametrize(
    ("offset", "end"),
    [
        pytest.param(12, 12, id="the_end_changes_nothing"),
        pytest.param(10, 10, id="between_batches"),
        pytest.param(9, 8, id="inside_a_batch_takes_all_of_it"),
        pytest.param(8, 8, id="between_segments"),
        pytest.param(5, 4, id="inside_a_batch_that_begins_a_segment"),
        pytest.param(2, 2, id="inside_the_first_segment"),
        pytest.param(0, 0, id="everything"),
    ],
)
def test_no_batch_reaches_the_offset_and_all_before_it_stays(offset: int, end: int) -> None:
    home = LogHome(MemoryFileSystem())
    log = filled(home)
    log.truncate_to(Offset(offset))
    assert log.log_end_offset == end
    assert log.high_watermark == end
    assert offsets(log) == list(range(end))
    left = LogHome(home.fs.after_crash(Loss.EVERYTHING, Random(0)))  # type: ignore[attr-defined]
    recovered = left.open()
    assert (recovered.log_end_offset, offsets(recovered)) == (end, list(range(end)))


def test_log_goes_on_behind_the_cut_and_forgets_epochs_and_producers_past_it() -> None:
    home = LogHome(MemoryFileSystem())
    log = home.create(epoch=1)
    for sequence in range(3):
        batch = batch_of([(b"k", b"v")], producer_id=9, producer_epoch=0, base_sequence=sequence)
        log.appender.append_as_leader(valid(batch), now_ms=0)
    log.truncate_to(Offset(1))
    assert log.reader.end_offset_for_epoch(Epoch(1)) == (1, 1)
    again = batch_of([(b"k", b"v")], producer_id=9, producer_epoch=0, base_sequence=1)
    assert log.appender.append_as_leader(valid(again), now_ms=0) == Appended(Offset(1), Offset(2))
    log.advance_high_watermark(log.sync())
    assert offsets(log) == [0, 1]


def test_truncating_below_the_log_start_is_a_mistake() -> None:
    log = filled(LogHome(MemoryFileSystem()))
    log.truncate_fully_and_start_at(Offset(30))
    with pytest.raises(ValueError, match="below the log start 30"):
        log.truncate_to(Offset(29))


def test_full_truncation_may_start_ahead_or_behind() -> None:
    home = LogHome(MemoryFileSystem())
    log = filled(home)
    for start in (50, 7):
        log.truncate_fully_and_start_at(Offset(start))
        assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (start,) * 3
        assert offsets(log) == []
        batch = valid(batch_of([(b"k", b"v")]))
        assert log.appender.append_as_leader(batch, now_ms=0) == Appended(
            Offset(start), Offset(start + 1)
        )


def test_log_that_starts_over_has_no_old_epochs() -> None:
    """The log never had the offsets below its start: Kafka clears the epochs too."""
    home = LogHome(MemoryFileSystem())
    log = filled(home)
    log.truncate_fully_and_start_at(Offset(50))
    assert log.epochs.entries == ()
    left = LogHome(home.fs.after_crash(Loss.EVERYTHING, Random(0)))  # type: ignore[attr-defined]
    assert left.open().epochs.entries == ()
    batch = batch_of([(b"k", b"v")], base_offset=50, leader_epoch=4)
    log.appender.append_as_follower(run_of(batch), now_ms=0)
    assert log.reader.end_offset_for_epoch(Epoch(2)) == (2, 50)


def test_each_truncation_raises_the_generation() -> None:
    log = filled(LogHome(MemoryFileSystem()))
    before = log.generation
    log.truncate_to(Offset(8))
    assert log.generation == before + 1
    log.truncate_fully_and_start_at(Offset(8))
    assert log.generation == before + 2
    log.retire()
    assert log.generation == before + 3


def test_full_disk_refuses_a_truncation_and_leaves_the_log_as_it_was() -> None:
    home = LogHome(MemoryFileSystem())
    log = filled(home)
    before, files = offsets(log), home.fs.list(log.directory)
    for truncate in (log.truncate_to, log.truncate_fully_and_start_at):
        home.fs.faults.fail("write", errno.ENOSPC, path="manifest")  # type: ignore[attr-defined]
        with pytest.raises(NoSpace):
            truncate(Offset(8))
        assert (offsets(log), log.offline_reason, home.failures) == (before, None, [])
        assert home.fs.list(log.directory) == files
        assert log.cleaning_view().generation == log.generation, "passes may be planned again"
    log.truncate_to(Offset(8))
    assert offsets(log) == list(range(8))


def test_full_disk_that_stops_a_truncation_in_its_middle_ends_the_log() -> None:
    """It is certain, so the next start finishes it."""
    home = LogHome(MemoryFileSystem())
    log = filled(home)
    home.fs.faults.fail("write", errno.ENOSPC, path="leader-epoch")  # type: ignore[attr-defined]
    with pytest.raises(DiskError, match="after the commit"):
        log.truncate_to(Offset(5))
    assert len(home.failures) == 1
    left = LogHome(home.fs.after_crash(Loss.EVERYTHING, Random(0))).open()  # type: ignore[attr-defined]
    assert offsets(left) == list(range(4))


def test_source_that_a_reader_still_holds_never_comes_back() -> None:
    """Recovery could take its file for a continuation of the truncated log, after a roll."""
    home = LogHome(MemoryFileSystem())
    log = filled(home)
    result = log.reader.read(
        Offset(4), max_bytes=1, whole_first_batch=True, isolation=Isolation.READ_UNCOMMITTED
    )
    assert isinstance(result, ReadResult)
    view = log.cleaning_view()
    sources = view.segments[1:2]
    batches, _ = recopied(sources, lambda _: True, ())
    log.cleaning.swap(
        [each.row for each in sources],
        write_cleaned(log, sources, batches, cut=9),
        generation=view.generation,
        clean_offset=None,
    )
    log.truncate_to(Offset(0))
    for _ in range(2):
        log.appender.append_as_leader(valid(batch_of([(b"new", b"1"), (b"new", b"2")])), now_ms=0)
    log.advance_high_watermark(log.sync())

    left = LogHome(home.fs.after_crash(Loss.NOTHING, Random(0)))  # type: ignore[attr-defined]

    assert offsets(left.open()) == [0, 1, 2, 3]
    (region,) = result.regions
    assert len(region.read_bytes()) == region.size
    region.release()


def test_segment_cut_in_the_hole_at_its_end_does_not_reach_into_the_next_one() -> None:
    """Compaction removed its last batch, so its file stays as it is, but its range shrinks."""
    home = LogHome(MemoryFileSystem())
    log = filled(home, segments=1)
    view = log.cleaning_view()
    batches, _ = recopied(view.segments, lambda record: record.offset < 2, ())
    log.cleaning.swap(
        [each.row for each in view.segments],
        write_cleaned(log, view.segments, batches, cut=9),
        generation=view.generation,
        clean_offset=None,
    )

    log.truncate_to(Offset(3))

    assert [(each.base_offset, each.end_offset) for each in log.segments] == [(0, 3), (3, 3)]


def test_what_was_below_a_full_truncation_is_out_of_range_after_a_crash() -> None:
    home = LogHome(MemoryFileSystem())
    home.create().truncate_fully_and_start_at(Offset(50))
    result = home.open().reader.read(
        Offset(49), max_bytes=1, whole_first_batch=True, isolation=Isolation.READ_UNCOMMITTED
    )
    assert result is ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("offset", [3, 0])
def test_a_roll_by_the_clock_may_fall_into_a_truncation(offset: int) -> None:
    """Its background commit must not seal what the truncation has removed, with later producers."""
    for operation in range(1, 40):
        fs = MemoryFileSystem()
        home = LogHome(fs, background=Deferred(inline=False))
        log = home.create()
        for sequence in range(6):
            batch = batch_of(
                [(b"k", b"v")], producer_id=7, producer_epoch=0, base_sequence=sequence
            )
            assert isinstance(log.appender.append_as_leader(valid(batch), now_ms=0), Appended)
        log.advance_high_watermark(log.sync())
        with rolled_at(operation, fs, log) as has_rolled:
            log.truncate_to(Offset(offset))
        home.background.run_all()

        assert (log.offline_reason, home.failures) == (None, [])
        crashed = fs.after_crash(Loss.EVERYTHING, Random(0))
        for state in (log, LogHome(crashed).open()):
            assert offsets(state) == list(range(offset))
            producer = state.producers.get(ProducerId(7))
            last = producer.batches[-1].last_sequence if producer and producer.batches else -1
            assert last == offset - 1
        if not has_rolled():
            return
    raise AssertionError("the truncation never ended")
