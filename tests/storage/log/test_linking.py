"""The copy of a log that is linked some time after its moment."""

from __future__ import annotations

import errno
import threading
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Epoch, Offset, ProducerId
from storage.files.errors import LinksRefused, LogOffline, MissingFile, NoSpace
from storage.files.local_files import LocalFileSystem
from storage.files.paths import ABORTED_TRANSACTIONS, KEYS, MANIFEST, join
from storage.formats.manifest import decode
from storage.log.opening import plan_log
from storage.segment.reader import Isolation
from storage.state.moment import MomentLost
from tests.harness.compacted_log import CONFIG, DIRECTORY, CompactedLog, identity, opening
from tests.harness.kept_moment import COPY, begin_moment, link, opened_copy, values
from tests.harness.log_builder import batch_of, valid
from tests.harness.log_home import Deferred
from tests.harness.memory_fs import Loss, MemoryFileSystem
from tests.harness.open_transactions import end_transaction, in_transaction

KEEPING = replace(CONFIG, segment_bytes=200, compaction_undo_ms=60_000)


def sizes_in(log: CompactedLog, directory: str = COPY) -> dict[str, int]:
    return {name: log.fs.size(join(directory, name)) for name in log.fs.list(directory)}


# ---------------------------------------------------------------- what is in it


def test_copy_has_the_records_of_the_moment_and_no_later_ones() -> None:
    log = CompactedLog()
    log.append((b"a", b"1"))
    log.append_segment((b"b", b"2"))
    log.append((b"a", b"3"))
    begin_moment(log.log)
    log.append((b"a", b"4"))
    log.append_segment((b"c", b"5"))
    linked = link(log.log)
    copy = opened_copy(log.fs)
    assert values(copy) == [b"1", b"2", b"3"]
    assert (linked.start_offset, linked.end_offset, linked.last_stable_offset) == (0, 3, 3)
    assert linked.size_bytes == copy.size_bytes
    assert (copy.high_watermark, copy.log_end_offset) == (3, 3)


def test_copy_shares_the_files_of_the_sealed_segments(tmp_path: Path) -> None:
    log = CompactedLog()
    log.append_segment((b"a", b"1"))
    log.clean()
    log.append_segment((b"a", b"2"))
    begin_moment(log.log)
    link(log.log)
    shared = set(log.fs.list(COPY)) & set(log.fs.list(DIRECTORY)) - {MANIFEST}
    names = [name for name in shared if name.endswith(".log") or KEYS in name]
    assert len(names) >= 3
    before = {name: log.fs.read_bytes(join(COPY, name)) for name in names}
    for name in names:
        log.fs.overwrite(join(DIRECTORY, name), 0, b"?")
        assert log.fs.read_bytes(join(COPY, name)) != before[name]


def test_transaction_that_is_open_at_the_moment_is_open_in_the_copy() -> None:
    log = CompactedLog()
    log.append((b"a", b"old"))
    in_transaction(log, 7, (b"a", b"new"))
    begin_moment(log.log)
    end_transaction(log, 7, is_commit=True)
    log.append((b"b", b"later"))
    linked = link(log.log)
    copy = opened_copy(log.fs)
    assert [each.producer_id for each in copy.producers.open_transactions()] == [7]
    assert linked.last_stable_offset == copy.last_stable_offset == 1
    assert values(copy, Isolation.READ_COMMITTED) == [b"old"]
    assert values(copy) == [b"old", b"new"]
    # Its coordinator, which the snapshot also has, can end it.
    copy.appender.append_marker(
        ProducerId(7), Epoch(0), is_commit=True, coordinator_epoch=Epoch(0), now_ms=0
    )
    copy.advance_high_watermark(copy.sync())
    assert values(copy, Isolation.READ_COMMITTED)[:2] == [b"old", b"new"]


def test_producer_goes_on_in_the_copy_where_it_was_at_the_moment() -> None:
    log = CompactedLog()
    log.append((b"a", b"1"), producer_id=7, producer_epoch=0, base_sequence=0)
    begin_moment(log.log)
    second = batch_of([(b"a", b"2")], producer_id=7, producer_epoch=0, base_sequence=1)
    log.append_batch(valid(bytearray(second)))
    log.append((b"a", b"3"), producer_id=7, producer_epoch=0, base_sequence=2)
    link(log.log)
    copy = opened_copy(log.fs)
    third = batch_of([(b"a", b"3")], producer_id=7, producer_epoch=0, base_sequence=2)
    refused = copy.appender.append_as_leader(valid(third), now_ms=0)
    assert getattr(refused, "error_code", None) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    appended = copy.appender.append_as_leader(valid(second), now_ms=0)
    assert not getattr(appended, "duplicate", True)


def test_epochs_and_aborted_transactions_beyond_the_end_are_cut() -> None:
    log = CompactedLog()
    in_transaction(log, 7, (b"a", b"1"))
    end_transaction(log, 7, is_commit=False)
    in_transaction(log, 8, (b"a", b"2"))
    begin_moment(log.log)
    log.log.lead_above(Epoch(3))
    end_transaction(log, 8, is_commit=False)
    in_transaction(log, 9, (b"a", b"3"))
    end_transaction(log, 9, is_commit=False)
    link(log.log)
    assert [row[0] for row in log.log.aborted_transactions] == [7, 8, 9]
    assert log.log.epochs.latest == 4
    copy = opened_copy(log.fs)
    assert copy.aborted_transactions == [(7, 0, 1)]
    assert list(copy.epochs.entries) == [(0, 0)]


def test_copy_without_aborted_transactions_has_no_file_of_them() -> None:
    log = CompactedLog()
    log.append((b"a", b"1"))
    begin_moment(log.log)
    link(log.log)
    assert ABORTED_TRANSACTIONS not in log.fs.list(COPY)
    assert not decode(log.fs.read_bytes(join(COPY, MANIFEST)), MANIFEST).has_aborted_file


def test_log_without_records_is_an_empty_copy() -> None:
    log = CompactedLog()
    begin_moment(log.log)
    log.append((b"a", b"1"))
    linked = link(log.log)
    copy = opened_copy(log.fs)
    assert (linked.start_offset, linked.end_offset, linked.size_bytes) == (0, 0, 0)
    assert values(copy) == []
    assert not len(copy.producers.open_transactions())


def test_log_without_files_is_an_empty_copy_and_gets_none() -> None:
    fs = MemoryFileSystem()
    log = plan_log(fs, identity(), CONFIG, opening())
    begin_moment(log)
    link(log)
    assert not fs.exists(DIRECTORY)
    assert values(opened_copy(fs)) == []


def test_log_without_files_that_was_written_to_after_the_moment() -> None:
    fs = MemoryFileSystem()
    log = plan_log(fs, identity(), CONFIG, opening())
    begin_moment(log)
    log.appender.append_as_leader(valid(batch_of([(b"a", b"1")])), now_ms=0)
    link(log)
    assert values(opened_copy(fs)) == []


def test_clean_offset_of_the_copy_is_that_of_its_segments() -> None:
    log = CompactedLog()
    log.append((b"a", b"1"))
    log.append((b"a", b"2"))
    begin_moment(log.log)
    log.append((b"a", b"3"))
    log.clean()
    link(log.log)
    copy = opened_copy(log.fs)
    assert (copy.clean_offset, values(copy)) == (2, [b"2"])


def test_pass_between_moment_and_link_keeps_what_a_later_record_has_outranked() -> None:
    log = CompactedLog()
    log.append((b"a", b"old"))
    log.append((b"b", b"1"))
    begin_moment(log.log)
    log.append((b"a", b"new"))
    log.clean()
    link(log.log)
    assert values(opened_copy(log.fs)) == [b"old", b"1"]
    log.clean()
    assert [each.value for each in log.records()] == [b"1", b"new"]
    assert values(opened_copy(log.fs)) == [b"old", b"1"]


def test_pass_that_was_planned_before_the_moment_does_no_harm() -> None:
    log = CompactedLog()
    log.append((b"a", b"1"))
    log.append((b"a", b"2"))
    log.roll()
    plan = log.plan()
    begin_moment(log.log)
    log.append((b"a", b"3"))
    log.execute(plan)
    link(log.log)
    assert values(opened_copy(log.fs)) == [b"2"]


def test_passes_kept_for_an_undo_are_not_in_the_copy() -> None:
    log = CompactedLog(KEEPING)
    log.append_segment((b"a", b"1"), (b"a", b"2"))
    log.clean()
    assert log.log.passes_kept
    begin_moment(log.log)
    link(log.log)
    copy = opened_copy(log.fs, config=KEEPING)
    assert (copy.passes_kept, values(copy)) == ((), [b"2"])


# ---------------------------------------------------------------- what happens to it


def test_copy_survives_a_crash_once_the_disk_is_synced() -> None:
    log = CompactedLog()
    log.append_segment((b"a", b"1"))
    log.append((b"a", b"2"))
    begin_moment(log.log)
    link(log.log)
    log.fs.sync_all("data")
    log.clean()
    left = log.fs.after_crash(Loss.EVERYTHING, Random(0))
    assert values(opened_copy(left)) == [b"1", b"2"]


@pytest.mark.parametrize("end_offset", [1, 2, 3])
def test_truncation_of_the_log_leaves_the_copy_alone(end_offset: int) -> None:
    log = CompactedLog()
    for number in range(3):
        log.append((b"%d" % number, b"value"))
    begin_moment(log.log)
    log.append((b"3", b"later"))
    link(log.log)
    before = sizes_in(log)
    log.log.truncate_to(Offset(end_offset))
    assert sizes_in(log) == before
    assert values(opened_copy(log.fs)) == [b"value"] * 3
    assert len(log.records()) == end_offset
    log.append((b"x", b"goes on"))
    log.fs.sync_all("data")
    log.reopen(is_clean=False)
    assert [each.value for each in log.records()] == [*[b"value"] * end_offset, b"goes on"]
    assert values(opened_copy(log.fs)) == [b"value"] * 3


def test_retention_and_deletion_leave_the_copy_alone() -> None:
    log = CompactedLog()
    log.append_segment((b"a", b"1"))
    begin_moment(log.log)
    link(log.log)
    log.log.delete_records(Offset(1))
    log.log.retire()
    log.fs.remove_tree(DIRECTORY)
    assert values(opened_copy(log.fs)) == [b"1"]


# ---------------------------------------------------------------- changes before the link


def test_log_start_that_moved_beyond_the_moment_leaves_an_empty_copy_that_ends_there() -> None:
    log = CompactedLog()
    log.append((b"a", b"1"))
    begin_moment(log.log)
    log.append_segment((b"a", b"2"), (b"a", b"3"))
    log.log.delete_records(Offset(2))
    linked = link(log.log)
    assert (linked.start_offset, linked.end_offset) == (1, 1)
    copy = opened_copy(log.fs)
    assert (copy.log_start_offset, copy.log_end_offset, values(copy)) == (1, 1, [])


def test_log_start_that_moved_within_the_copy_is_its_start() -> None:
    log = CompactedLog()
    log.append((b"a", b"1"))
    log.append((b"a", b"2"))
    begin_moment(log.log)
    log.log.delete_records(Offset(1))
    assert link(log.log).start_offset == 1
    assert values(opened_copy(log.fs)) == [b"2"]


def test_truncation_loses_the_moment() -> None:
    log = CompactedLog()
    for value in (b"1", b"2"):
        log.append((b"a", value))
    begin_moment(log.log)
    log.log.truncate_to(Offset(1))
    with pytest.raises(MomentLost, match="orders-0 was truncated or replaced"):
        link(log.log)


def test_undo_loses_the_moment() -> None:
    log = CompactedLog(KEEPING)
    log.append_segment((b"a", b"1"), (b"a", b"2"))
    log.clean()
    begin_moment(log.log)
    log.log.undo_pass(log.log.passes_kept[-1].number)
    with pytest.raises(MomentLost):
        link(log.log)


def test_deletion_loses_the_moment() -> None:
    log = CompactedLog()
    log.append((b"a", b"1"))
    begin_moment(log.log)
    log.log.retire()
    with pytest.raises(MomentLost, match="was deleted"):
        link(log.log)


def test_deletion_while_it_is_linked_loses_the_moment() -> None:
    waiting = Deferred(inline=False)
    log = CompactedLog(background=waiting)
    log.append_segment((b"a", b"1"))
    log.append_segment((b"a", b"2"))
    waiting.run_all()
    begin_moment(log.log)

    def delete(action: str, _path: str) -> None:
        if action == "link" and not log.log.is_retired:
            log.log.retire()
            log.fs.remove_tree(DIRECTORY)

    log.fs.on_operation = delete
    with pytest.raises(MomentLost, match="was deleted"):
        link(log.log)


def test_file_that_is_missing_though_the_log_is_there_is_a_failure() -> None:
    log = CompactedLog()
    log.append_segment((b"a", b"1"))
    begin_moment(log.log)
    log.fs.unlink(log.log.segments[0].path(".log"))
    with pytest.raises(MissingFile):
        link(log.log)


def test_key_sidecar_that_a_pass_removes_meanwhile_is_left_out() -> None:
    log = CompactedLog()
    log.append_segment((b"a", b"1"))
    log.clean()
    sidecar = log.log.segments[0].path(KEYS)
    assert log.fs.exists(sidecar)
    begin_moment(log.log)

    def remove(action: str, path: str) -> None:
        if action == "link" and path.endswith(".log") and log.fs.exists(sidecar):
            log.fs.unlink(sidecar)

    log.fs.on_operation = remove
    link(log.log)
    log.fs.on_operation = None
    assert not [name for name in log.fs.list(COPY) if KEYS in name]
    assert values(opened_copy(log.fs)) == [b"1"]


def test_file_system_without_hard_links_refuses_and_the_log_goes_on() -> None:
    log = CompactedLog()
    log.append_segment((b"a", b"1"))
    begin_moment(log.log)
    log.fs.faults.fail("link", errno.EPERM)
    with pytest.raises(LinksRefused):
        link(log.log)
    log.append((b"a", b"2"))
    assert log.log.offline_reason is None


def test_full_disk_refuses_and_the_log_goes_on() -> None:
    log = CompactedLog()
    log.append((b"a", b"1"))
    begin_moment(log.log)
    log.log.take_moment(0)
    log.fs.faults.fail("open", errno.ENOSPC, path=COPY)
    with pytest.raises(NoSpace):
        link(log.log)
    log.append((b"a", b"2"))
    assert log.log.offline_reason is None


def test_log_that_is_out_of_service_has_no_copy() -> None:
    log = CompactedLog()
    begin_moment(log.log)
    log.log.go_offline("a test")
    with pytest.raises(LogOffline):
        link(log.log)


# ---------------------------------------------------------------- a real disk


def test_real_files_are_linked_while_a_thread_appends(tmp_path: Path) -> None:
    fs = LocalFileSystem()
    its = replace(identity(), directory=str(tmp_path / "orders/0"))
    log = plan_log(fs, its, CONFIG, opening())
    for number in range(20):
        log.appender.append_as_leader(valid(batch_of([(b"k", b"%d" % number)])), now_ms=0)
        if number % 5 == 0:
            log.roll(0)
    begin_moment(log)
    log.appender.append_as_leader(valid(batch_of([(b"k", b"after")])), now_ms=0)
    copy = str(tmp_path / "snapshots/1/orders/0")
    thread = threading.Thread(target=log.link_moment, args=(copy,))
    thread.start()
    for _ in range(50):
        log.appender.append_as_leader(valid(batch_of([(b"k", b"after")])), now_ms=0)
    thread.join()
    log.end_moment()
    assert values(opened_copy(fs, copy, its=its)) == [b"%d" % number for number in range(20)]
    linked = [path for path in Path(copy).iterdir() if path.stat().st_nlink == 2]
    assert len([path for path in linked if path.suffix == ".log"]) == 5
    log.close()
