"""A log whose records a copy replaces."""

from __future__ import annotations

import dataclasses
import errno
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from protocol.records.batch_header import stamp
from protocol.records.control_record import ControlType
from protocol.wire.numbers import Epoch, Offset
from storage.files.errors import (
    DiskError,
    LinksRefused,
    LogOffline,
    NoSpace,
    SwapRefused,
    SyncFailed,
)
from storage.files.files import FileSystem
from storage.files.local_files import LocalFileSystem
from storage.formats.manifest import UNKNOWN, decode
from storage.log import reader as log_reader
from storage.log.log import PartitionLog
from storage.log.offsets import LogOffsets
from storage.log.segment_list import SegmentList
from storage.segment.reader import Isolation, ReadResult
from storage.segment.timestamp_lookup import TimestampOffset
from storage.state.aborted_transactions import AbortedTransactions
from storage.state.log_states import LogStates
from storage.verify.log import verify_log
from storage.verify.verify import find_logs
from tests.harness.copied_log import begin_copy, seen_of
from tests.harness.hand_cleaning import recopied, write_cleaned
from tests.harness.log_builder import batch_of, headers_in, marker_of, run_of, valid
from tests.harness.log_home import SMALL, Deferred, LogHome, read_all, rolled_at
from tests.harness.memory_fs import Loss, MemoryFileSystem


def old_log(home: LogHome, *, batches: int = 4) -> PartitionLog:
    log = home.create(epoch=5)
    for number in range(batches):
        log.appender.append_as_leader(valid(batch_of([(b"old", b"%d" % number)])), now_ms=0)
    log.advance_high_watermark(log.sync())
    return log


def filled_copy(home: LogHome, log: PartitionLog, offsets: list[int]) -> PartitionLog:
    copy = begin_copy(home, log, offsets[0])
    for offset in offsets:
        batch = batch_of([(b"new", b"%d" % offset)], base_offset=offset, leader_epoch=3)
        copy.appender.append_as_follower(run_of(batch), now_ms=0)
    copy.advance_high_watermark(copy.sync())
    return copy


def values(log: PartitionLog) -> list[tuple[int, bytes | None]]:
    return [(record.offset, record.value) for record in read_all(log)]


def after_power_cut(home: LogHome, *, directory: str = "/data/orders/0") -> LogHome:
    assert isinstance(home.fs, MemoryFileSystem)
    return LogHome(home.fs.after_crash(Loss.EVERYTHING, Random(0)), directory=directory)


# ---------------------------------------------------------------- the records


def test_log_has_the_records_of_the_copy_and_goes_on() -> None:
    home = LogHome(MemoryFileSystem())
    log = old_log(home)
    copy = filled_copy(home, log, [2, 5, 6, 30])
    assert log.replace_with(copy, puts_aside=False) is None
    expected = [(offset, b"%d" % offset) for offset in (2, 5, 6, 30)]
    assert values(log) == expected
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (2, 31, 31)
    assert list(log.epochs.entries) == [(3, 2)]
    assert values(after_power_cut(home).open()) == expected
    log.appender.append_as_leader(valid(batch_of([(b"k", b"31")])), now_ms=0)
    log.advance_high_watermark(log.sync())
    assert values(log) == [*expected, (31, b"31")]
    assert list(log.epochs.entries) == [(3, 2), (5, 31)]


def test_copy_is_out_of_service_and_a_start_removes_what_is_left_of_it() -> None:
    home = LogHome(MemoryFileSystem())
    log = old_log(home)
    copy = filled_copy(home, log, [1])
    log.replace_with(copy, puts_aside=False)
    assert copy.is_retired
    assert home.fs.list(copy.directory) == ["manifest"]
    left = after_power_cut(home)
    left.open()
    assert left.fs.list("/data/orders") == ["0"]
    with pytest.raises(LogOffline):
        log.replace_with(copy, puts_aside=False)


def test_log_has_the_id_of_its_last_copy_from_the_swap_on() -> None:
    home = LogHome(MemoryFileSystem())
    log = old_log(home)
    assert log.copy_id is None
    for number in (1, 2):
        log.replace_with(
            filled_copy(home, log, [number]), puts_aside=True, copy_id=UUID(int=number)
        )
        assert log.copy_id == UUID(int=number)
        assert after_power_cut(home).open().copy_id == UUID(int=number)
    aside = after_power_cut(home, directory="/data/orders/0.aside.2")
    assert aside.open().copy_id == UUID(int=1)
    log.appender.append_as_leader(valid(batch_of([(b"k", b"v")])), now_ms=0)
    log.roll(0)
    log.truncate_to(Offset(3))
    log.close()
    for is_clean in (True, False):
        assert home.open(is_clean=is_clean).copy_id == UUID(int=2)


def test_copy_that_a_full_disk_refuses_leaves_no_id() -> None:
    home = LogHome(MemoryFileSystem())
    log = old_log(home)
    copy = filled_copy(home, log, [1])
    home.fs.faults.fail("write", errno.ENOSPC, path="/0/manifest")  # type: ignore[attr-defined]
    with pytest.raises(NoSpace):
        log.replace_with(copy, puts_aside=False, copy_id=UUID(int=1))
    assert log.copy_id is None
    log.roll(0)
    assert after_power_cut(home).open().copy_id is None


def test_empty_copy_leaves_an_empty_log_at_its_start() -> None:
    home = LogHome(MemoryFileSystem())
    log = old_log(home)
    log.replace_with(begin_copy(home, log, 9), puts_aside=False)
    for each in (log, after_power_cut(home).open()):
        assert (each.log_start_offset, each.high_watermark, each.log_end_offset) == (9, 9, 9)
        assert values(each) == []
        assert each.epochs.entries == ()


def test_all_of_the_copy_is_readable_even_what_its_own_readers_could_not_see_yet() -> None:
    home = LogHome(MemoryFileSystem())
    log = old_log(home)
    copy = begin_copy(home, log, 0)
    sent = batch_of([(b"k", b"v")], leader_epoch=1, producer_id=9, producer_epoch=0,
                    is_transactional=True)  # fmt: skip
    marker = marker_of(ControlType.COMMIT, 9)
    stamp(marker, base_offset=Offset(1), leader_epoch=Epoch(1))
    copy.appender.append_as_follower(run_of(sent, marker), now_ms=0)
    assert copy.last_stable_offset == 0
    log.replace_with(copy, puts_aside=False)
    assert (log.last_stable_offset, log.high_watermark) == (2, 2)


def test_log_has_to_lead_above_the_epochs_of_the_copy() -> None:
    home = LogHome(MemoryFileSystem())
    log = old_log(home)
    copy = begin_copy(home, log, 0)
    copy.appender.append_as_follower(run_of(batch_of([(b"k", b"v")], leader_epoch=5)), now_ms=0)
    with pytest.raises(ValueError, match="does not lead above epoch 5"):
        log.replace_with(copy, puts_aside=False)
    log.lead_above(Epoch(5))
    log.replace_with(copy, puts_aside=False)
    assert values(log) == [(0, b"v")]


def test_reader_of_an_old_segment_finishes_on_its_descriptor(tmp_path: Path) -> None:
    (tmp_path / "orders" / "0").mkdir(parents=True)
    home = LogHome(LocalFileSystem(), directory=str(tmp_path / "orders" / "0"))
    log = old_log(home)
    result = log.reader.read(
        Offset(0), max_bytes=1000, whole_first_batch=True, isolation=Isolation.READ_UNCOMMITTED
    )
    assert isinstance(result, ReadResult)
    before = result.regions[0].read_bytes()
    log.replace_with(filled_copy(home, log, [1, 2]), puts_aside=False)
    assert result.regions[0].read_bytes() == before
    result.release()
    assert values(log) == [(1, b"1"), (2, b"2")]


# ---------------------------------------------------------------- cleaning and flushing


def test_planned_pass_cannot_swap_and_nothing_is_clean() -> None:
    home = LogHome(MemoryFileSystem())
    log = old_log(home)
    log.roll(0)
    view = log.cleaning_view()
    batches, _ = recopied(view.segments, lambda _: True, ())
    cleaned = write_cleaned(log, view.segments, batches, cut=9)
    log.replace_with(filled_copy(home, log, [1, 2, 3]), puts_aside=False)
    with pytest.raises(SwapRefused):
        log.cleaning.commit_clean_offset(Offset(4), generation=view.generation)
    with pytest.raises(SwapRefused):
        log.cleaning.swap(
            [each.row for each in view.segments],
            cleaned,
            generation=view.generation,
            clean_offset=None,
        )
    assert log.clean_offset == 1
    assert log.cleaning_view().generation == log.generation


def test_pass_that_is_planned_in_between_cannot_swap(monkeypatch: pytest.MonkeyPatch) -> None:
    home = LogHome(MemoryFileSystem())
    log = old_log(home)
    seen: list[int] = []
    replace = SegmentList.replace

    def looked_at(self: SegmentList, *args: object) -> object:
        seen.append(log.cleaning_view().generation)
        return replace(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(SegmentList, "replace", looked_at)
    log.replace_with(filled_copy(home, log, [1]), puts_aside=False)
    assert seen == [UNKNOWN]


@pytest.mark.parametrize("puts_aside", [True, False])
def test_passes_of_the_old_log_cannot_be_undone_in_the_new_one(puts_aside: bool) -> None:
    home = LogHome(MemoryFileSystem(), config=dataclasses.replace(SMALL, compaction_undo_ms=1000))
    log = old_log(home)
    log.roll(0)
    view = log.cleaning_view()
    batches, _ = recopied(view.segments, lambda _: True, ())
    log.cleaning.swap(
        [each.row for each in view.segments],
        write_cleaned(log, view.segments, batches, cut=9),
        generation=view.generation,
        clean_offset=Offset(4),
    )
    (kept,) = log.passes_kept

    aside = log.replace_with(filled_copy(home, log, [1, 2, 3]), puts_aside=puts_aside)

    left = after_power_cut(home)
    for opened in (log, left.open()):
        assert opened.undo_refusal(kept.number) == "a resync replaced the log"
        assert values(opened) == [(offset, b"%d" % offset) for offset in (1, 2, 3)]
    files = [name for name in left.fs.list("/data/orders/0") if name.endswith(".log")]
    assert len(files) == 2
    if aside is not None:
        assert not [name for name in left.fs.list(aside) if "undo" in name]


def test_unfinished_pass_of_the_old_log_does_not_bound_cuts_of_the_new_one() -> None:
    home = LogHome(MemoryFileSystem())
    log = old_log(home)
    log.roll(0)
    view = log.cleaning_view()
    batches, _ = recopied(view.segments, lambda _: True, ())
    log.cleaning.swap(
        [each.row for each in view.segments],
        write_cleaned(log, view.segments, batches, cut=9),
        generation=view.generation,
        clean_offset=None,
    )
    assert log.cut_offset_min == 4
    log.replace_with(filled_copy(home, log, [1, 2, 3]), puts_aside=False)
    assert log.cut_offset_min == 1
    log.truncate_to(Offset(2), keeps_keys=True)
    assert values(log) == [(1, b"1")]


def test_clean_offset_of_the_old_log_is_not_that_of_the_new_one() -> None:
    home = LogHome(MemoryFileSystem())
    log = old_log(home)
    log.roll(0)
    log.cleaning.commit_clean_offset(Offset(4), generation=log.generation)
    log.replace_with(filled_copy(home, log, [1, 2, 9]), puts_aside=False)
    assert log.clean_offset == 1
    assert after_power_cut(home).open().clean_offset == 1


def test_replaced_log_needs_no_sync() -> None:
    home = LogHome(MemoryFileSystem())
    log = old_log(home)
    log.appender.append_as_leader(valid(batch_of([(b"k", b"v")])), now_ms=1)
    log.replace_with(filled_copy(home, log, [1, 2, 3]), puts_aside=False)
    assert not log.is_flush_due(now_ms=1 << 60)


# ---------------------------------------------------------------- put aside


def test_old_log_is_put_aside_as_a_whole_log() -> None:
    home = LogHome(MemoryFileSystem())
    log = old_log(home)
    before = values(log)
    aside = log.replace_with(filled_copy(home, log, [1, 2]), puts_aside=True)
    assert aside == "/data/orders/0.aside.4"
    for is_clean in (True, False):
        assert values(after_power_cut(home, directory=aside).open(is_clean=is_clean)) == before


def test_log_that_is_put_aside_is_not_changed_by_the_new_one() -> None:
    home = LogHome(MemoryFileSystem())
    log = old_log(home)
    before = values(log)
    aside = log.replace_with(filled_copy(home, log, [1, 2]), puts_aside=True)
    assert aside is not None
    log.appender.append_as_leader(valid(batch_of([(b"k", b"v")])), now_ms=0)
    log.truncate_to(Offset(2))
    assert values(after_power_cut(home, directory=aside).open()) == before


def test_second_log_with_the_same_end_is_put_aside_beside_the_first() -> None:
    home = LogHome(MemoryFileSystem())
    log = old_log(home)
    asides = [
        log.replace_with(filled_copy(home, log, [number, 3]), puts_aside=True) for number in (1, 2)
    ]
    assert asides == ["/data/orders/0.aside.4", "/data/orders/0.aside.4.1"]
    assert values(after_power_cut(home, directory="/data/orders/0.aside.4.1").open()) == [
        (1, b"1"),
        (3, b"3"),
    ]


def test_put_aside_with_transactions_epochs_and_cleaned_segments() -> None:
    home = LogHome(MemoryFileSystem())
    log = old_log(home)
    sent = batch_of([(b"k", b"t")], producer_id=9, producer_epoch=0, is_transactional=True)
    for kind in (ControlType.ABORT, ControlType.COMMIT):
        log.appender.append_as_leader(valid(sent), now_ms=0)
        log.appender.append_as_leader(valid(marker_of(kind, 9)), now_ms=0)
    log.appender.append_as_leader(valid(sent), now_ms=0)
    log.roll(0)
    log.advance_high_watermark(log.sync())
    view = log.cleaning_view()
    batches, _ = recopied(view.segments, lambda each: each.offset != 1, ())
    log.cleaning.swap(
        [each.row for each in view.segments],
        write_cleaned(log, view.segments, batches, cut=9),
        generation=view.generation,
        clean_offset=Offset(2),
    )
    before = seen_of(log)
    aside = log.replace_with(filled_copy(home, log, [1]), puts_aside=True)
    assert aside is not None
    left = after_power_cut(home, directory=aside)
    assert verify_log(left.fs, left.identity).findings == ()
    for is_clean in (True, False):
        opened = left.open(is_clean=is_clean)
        assert seen_of(opened) == before
        assert opened.clean_offset == 2


def test_without_hard_links_nothing_changes() -> None:
    home = LogHome(MemoryFileSystem())
    log = old_log(home)
    before = values(log)
    copy = filled_copy(home, log, [1, 2])
    home.fs.faults.fail("link", errno.EPERM)  # type: ignore[attr-defined]
    with pytest.raises(LinksRefused, match=r"link .*Operation not permitted"):
        log.replace_with(copy, puts_aside=True)
    assert values(log) == before
    assert log.offline_reason is None
    assert home.fs.list("/data/orders") == ["0", "0.resync"]
    log.replace_with(copy, puts_aside=False)
    assert values(log) == [(1, b"1"), (2, b"2")]


def test_directories_beside_the_log_are_no_partitions() -> None:
    home = LogHome(MemoryFileSystem())
    log = old_log(home)
    log.replace_with(filled_copy(home, log, [1]), puts_aside=True)
    begin_copy(home, log, 0)
    found = find_logs(home.fs, "/data/orders")
    assert found is not None
    assert [each.directory for each in found.logs] == ["/data/orders/0"]
    aside = find_logs(home.fs, "/data/orders/0.aside.4")
    assert aside is not None
    assert [each.topic_partition.partition for each in aside.logs] == [0]


# ---------------------------------------------------------------- failures


def test_on_a_full_disk_nothing_changes_and_the_copy_can_be_used_again() -> None:
    home = LogHome(MemoryFileSystem())
    log = old_log(home)
    before = values(log)
    copy = filled_copy(home, log, [1, 2])
    home.fs.faults.fail("write", errno.ENOSPC, path="/0/manifest")  # type: ignore[attr-defined]
    with pytest.raises(NoSpace):
        log.replace_with(copy, puts_aside=True)
    assert values(log) == before
    assert home.fs.list("/data/orders") == ["0", "0.resync"]
    copy.appender.append_as_follower(
        run_of(batch_of([(b"new", b"7")], base_offset=7, leader_epoch=3)), now_ms=0
    )
    assert log.cleaning_view().generation == log.generation
    log.replace_with(copy, puts_aside=True)
    assert values(log) == [(1, b"1"), (2, b"2"), (7, b"7")]


def test_copy_whose_files_cannot_be_moved_back_is_out_of_service_and_the_log_is_not() -> None:
    home = LogHome(MemoryFileSystem())
    log = old_log(home)
    before = values(log)
    copy = filled_copy(home, log, [1, 2])
    faults = home.fs.faults  # type: ignore[attr-defined]
    faults.fail("write", errno.ENOSPC, path="/0/manifest")
    faults.fail("rename", errno.ENOSPC, path=".cleaned")
    with pytest.raises(NoSpace, match="manifest"):
        log.replace_with(copy, puts_aside=True)
    assert log.offline_reason is None
    assert copy.offline_reason is not None
    assert values(log) == before
    log.replace_with(filled_copy(home, log, [3]), puts_aside=True)
    assert values(log) == values(after_power_cut(home).open()) == [(3, b"3")]


def test_failed_sync_of_the_copy_takes_the_log_s_directory_offline() -> None:
    home = LogHome(MemoryFileSystem())
    log = old_log(home)
    copy = begin_copy(home, log, 0)
    copy.appender.append_as_follower(run_of(batch_of([(b"k", b"v")], leader_epoch=3)), now_ms=0)
    home.fs.faults.fail("sync", errno.EIO, path="resync")  # type: ignore[attr-defined]
    with pytest.raises(SyncFailed):
        log.replace_with(copy, puts_aside=False)
    assert log.offline_reason is not None
    assert len(home.failures) == 1
    assert values(after_power_cut(home).open())[0] == (0, b"0")


def test_full_disk_after_the_commit_takes_the_log_offline_and_a_start_finishes() -> None:
    home = LogHome(MemoryFileSystem())
    log = old_log(home)
    copy = filled_copy(home, log, [1, 2])
    home.fs.faults.fail("unlink", errno.ENOSPC)  # type: ignore[attr-defined]
    with pytest.raises(DiskError, match="after the commit"):
        log.replace_with(copy, puts_aside=True)
    assert log.offline_reason is not None
    left = after_power_cut(home)
    path = f"{left.identity.directory}/manifest"
    manifest = decode(left.fs.read_bytes(path), path)
    assert manifest.has_foreign_states
    assert manifest.truncate_to == 3
    report = verify_log(left.fs, left.identity)
    assert not report.errors
    assert any("a resync has just replaced the log" in str(each) for each in report.findings)
    assert values(left.open()) == [(1, b"1"), (2, b"2")]
    assert not decode(left.fs.read_bytes(path), path).has_foreign_states
    assert left.fs.list("/data/orders") == ["0", "0.aside.4"]


# ---------------------------------------------------------------- readers


def transactional(
    home: LogHome, log: PartitionLog | None, generation: int, start_offset: int
) -> PartitionLog:
    """A log, or a copy of one: a producer aborts, commits, and leaves a transaction open."""
    filled = home.create(epoch=5) if log is None else begin_copy(home, log, start_offset)
    producer, offset = 100 + generation, start_offset
    kinds = [ControlType.ABORT, ControlType.COMMIT] * 2 + [None] * (1 + generation % 3)
    for kind in kinds:
        sent = batch_of([(b"k", b"%d" % generation)], producer_id=producer, producer_epoch=0,
                        is_transactional=True)  # fmt: skip
        parts = [sent] if kind is None else [sent, marker_of(kind, producer)]
        for part in parts:
            stamp(part, base_offset=Offset(offset), leader_epoch=Epoch(1))
            filled.appender.append_as_follower(run_of(part), now_ms=0)
            offset += 1
        if kind is ControlType.COMMIT:
            filled.roll(0)
    filled.advance_high_watermark(filled.sync())
    return filled


def check_answer(result: ReadResult, offset: int) -> int | None:
    """Check that everything in an answer is of one log. Returns its generation, if it has records."""
    data = b"".join(region.read_bytes() for region in result.regions)
    headers = headers_in(data)
    generations = {header.producer_id - 100 for header in headers}
    assert len(generations) <= 1, generations
    if not generations:
        return None
    (generation,) = generations
    start = result.log_start_offset
    assert start == generation % 2
    assert result.high_watermark == start + 9 + generation % 3
    assert result.last_stable_offset == start + 8
    assert all(header.last_offset < start + 8 for header in headers), "it is undecided"
    first, end = headers[0].base_offset, headers[-1].last_offset + 1
    expected = [
        (100 + generation, start + at) for at in (0, 4)
        if start + at + 1 >= max(offset, first - 1) and start + at < end
    ]  # fmt: skip
    assert [each for each in result.aborted if each[1] + 1 >= first] == [
        each for each in expected if each[1] + 1 >= first
    ]
    return generation


def read_committed(log: PartitionLog, offset: int) -> ReadResult:
    result = log.reader.read(
        Offset(offset), max_bytes=1000, whole_first_batch=True, isolation=Isolation.READ_COMMITTED
    )
    assert isinstance(result, ReadResult)
    return result


@contextmanager
def calling(owner: object, name: str, before: Callable[[], None]) -> Iterator[None]:
    """Call `before` once, at the first call of a function or property."""
    done: list[bool] = []

    def once() -> bool:
        if not done:
            done.append(True)
            before()
        return True

    with pytest.MonkeyPatch.context() as patch:
        whole = getattr(owner, name)
        if isinstance(whole, property):
            get = whole.fget
            assert get is not None
            patch.setattr(owner, name, property(lambda self: once() and get(self)))
        else:
            patch.setattr(owner, name, lambda *args, **names: once() and whole(*args, **names))
        yield


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (LogOffsets, "last_stable"),
        (LogStates, "aborted"),
        (log_reader, "find_region"),
        (AbortedTransactions, "between"),
    ],
)
def test_read_that_meets_a_replacement_has_nothing_of_the_old_log(owner: object, name: str) -> None:
    home = LogHome(MemoryFileSystem())
    log = transactional(home, None, 0, 0)
    copy = transactional(home, log, 1, 1)
    with calling(owner, name, lambda: assert_none(log.replace_with(copy, puts_aside=False))):
        result = read_committed(log, 2)
    assert check_answer(result, 2) == 1
    result.release()


LOOKUPS: list[tuple[object, str, Callable[[PartitionLog], object], object]] = [
    (log_reader, "first_at_or_after", lambda log: offset_at(log.reader.offset_for_timestamp(0)), 7),
    (log_reader, "youngest", lambda log: offset_at(log.reader.offset_of_max_timestamp()), 7),
    (LogStates, "epochs", lambda log: log.reader.end_offset_for_epoch(Epoch(3)), (3, 10)),
    (LogStates, "epochs", lambda log: log.reader.leader_epoch_at(Offset(8)), 3),
]


@pytest.mark.parametrize(("owner", "name", "look_up", "expected"), LOOKUPS)
def test_lookup_that_meets_a_replacement_answers_for_the_new_log(
    owner: object, name: str, look_up: Callable[[PartitionLog], object], expected: object
) -> None:
    home = LogHome(MemoryFileSystem())
    log = old_log(home, batches=20)
    copy = filled_copy(home, log, [7, 8, 9])
    with calling(owner, name, lambda: assert_none(log.replace_with(copy, puts_aside=False))):
        assert look_up(log) == expected


def offset_at(found: TimestampOffset | None) -> int | None:
    return None if found is None else found.offset


def assert_none(value: object) -> None:
    assert value is None


def test_read_waits_while_the_segments_are_new_and_the_states_are_old() -> None:
    home = LogHome(MemoryFileSystem())
    log = transactional(home, None, 0, 0)
    copy = transactional(home, log, 1, 1)
    found: list[ReadResult] = []
    reader = threading.Thread(target=lambda: found.append(read_committed(log, 2)))
    replacement_by = LogStates.replacement_by

    def slow(self: LogStates, other: LogStates) -> Callable[[], None]:
        take = replacement_by(self, other)

        def read_before() -> None:
            with calling(SegmentList, "wait_for_replacement", waits.set):
                reader.start()
                assert waits.wait(30), "the reader has to find that a replacement is under way"
            take()

        return read_before

    waits = threading.Event()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LogStates, "replacement_by", slow)
        log.replace_with(copy, puts_aside=False)
    reader.join()
    assert check_answer(found[0], 2) == 1


@pytest.mark.parametrize("file_system", [LocalFileSystem, MemoryFileSystem])
def test_answers_to_threads_are_of_one_log_while_copies_replace_it(
    tmp_path: Path, file_system: Callable[[], FileSystem]
) -> None:
    home = LogHome(file_system(), directory=str(tmp_path / "orders" / "0"))
    home.fs.make_directory(home.identity.directory)
    log = transactional(home, None, 0, 0)
    stopped, seen, errors = threading.Event(), set(), []

    def read_again_and_again(random: Random) -> None:
        try:
            while not stopped.is_set():
                offset = random.randrange(1, 9)
                result = read_committed(log, offset)
                seen.add(check_answer(result, offset))
                result.release()
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)

    readers = [
        threading.Thread(target=read_again_and_again, args=(Random(number),)) for number in range(2)
    ]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for reader in readers:
            reader.start()
        for generation in range(1, 60 if file_system is MemoryFileSystem else 6):
            copy = transactional(home, log, generation, generation % 2)
            log.replace_with(copy, puts_aside=False)
    finally:
        stopped.set()
        for reader in readers:
            reader.join()
        sys.setswitchinterval(interval)
    if errors:
        raise errors[0]
    assert len(seen) > 2


@pytest.mark.parametrize("puts_aside", [False, True])
def test_a_roll_by_the_clock_may_fall_into_a_replacement(puts_aside: bool) -> None:
    """Its background commit must not seal what the replacement has removed."""
    for operation in range(1, 100):
        fs = MemoryFileSystem()
        home = LogHome(fs, background=Deferred(inline=False))
        log = old_log(home)
        copy = filled_copy(home, log, [0, 2, 5])
        home.background.run_all()
        with rolled_at(operation, fs, log) as has_rolled:
            aside = log.replace_with(copy, puts_aside=puts_aside)
        home.background.run_all()

        assert (log.offline_reason, home.failures) == (None, [])
        assert (aside is not None) is puts_aside
        crashed = fs.after_crash(Loss.EVERYTHING, Random(0))
        for each in (log, LogHome(crashed).open()):
            assert [record.offset for record in read_all(each)] == [0, 2, 5]
        if not has_rolled():
            return
    raise AssertionError("the replacement never ended")
