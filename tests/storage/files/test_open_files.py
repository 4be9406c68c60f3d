from __future__ import annotations

import errno
from pathlib import Path

import pytest

from storage.files.local_files import LocalFileSystem
from storage.files.open_files import ACTIVE, SEALED, OpenFiles, share_descriptors
from storage.log.appender import Appended
from storage.log.log import PartitionLog
from storage.segment import files as segment_files
from tests.harness.held_files import open_descriptors
from tests.harness.log_builder import batch_of, valid
from tests.harness.log_home import Deferred, LogHome, read_all
from tests.harness.memory_fs import MemoryFileSystem


def test_log_of_many_segments_holds_a_bounded_number_of_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_files, "SEALED", OpenFiles(8))
    home = LogHome(LocalFileSystem(), directory=str(tmp_path / "log"))
    (tmp_path / "log").mkdir()
    log = home.create()
    for _ in range(60):
        log.appender.append_as_leader(valid(batch_of([(b"k", b"v")])), now_ms=0)
        log.roll(0)
        assert len(open_descriptors(tmp_path)) <= 10
    log.advance_high_watermark(log.sync())
    for _ in range(2):
        assert [record.offset for record in read_all(log)] == list(range(60))
        assert len(open_descriptors(tmp_path)) <= 10
    log.close()
    assert len(open_descriptors(tmp_path)) == 0
    log = home.open(is_clean=True)
    assert len(read_all(log)) == 60
    assert len(open_descriptors(tmp_path)) <= 10
    log.close()


def filled_logs(folder: Path, count: int, background: Deferred) -> list[PartitionLog]:
    """Logs that were opened after a clean stop, each with one unsynced batch."""
    logs = []
    for number in range(count):
        directory = folder / str(number)
        directory.mkdir()
        home = LogHome(LocalFileSystem(), directory=str(directory), background=background)
        home.create().close()
        log = home.open(is_clean=True)
        log.appender.append_as_leader(valid(batch_of([(b"k", b"v")])), now_ms=0)
        logs.append(log)
    return logs


def test_active_file_is_closed_once_it_is_synced_and_opened_again_for_the_next_append(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_files, "ACTIVE", OpenFiles(8))
    logs = filled_logs(tmp_path, 20, Deferred(inline=False))
    for log in logs:
        log.advance_high_watermark(log.sync())
    for round_ in range(1, 4):
        for log in logs:
            log.appender.append_as_leader(valid(batch_of([(b"k", b"v")])), now_ms=0)
            log.advance_high_watermark(log.sync())
            assert len(read_all(log)) == round_ + 1
            assert len(open_descriptors(tmp_path)) <= 9
    for log in logs:
        log.close()
    assert len(open_descriptors(tmp_path)) == 0


def test_unsynced_file_stays_open_until_the_sync_that_is_brought_forward(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `flush.on.acks.all=false` nothing else would ever sync it."""
    monkeypatch.setattr(segment_files, "ACTIVE", OpenFiles(16))
    background = Deferred(inline=False)
    logs = filled_logs(tmp_path, 20, background)
    assert len(open_descriptors(tmp_path)) == 20
    assert background.waiting
    background.run_all()
    assert len(open_descriptors(tmp_path)) <= 16
    for log in logs:
        log.close()


def test_descriptors_do_not_run_out_where_appends_are_faster_than_syncs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_files, "ACTIVE", OpenFiles(8))
    logs = filled_logs(tmp_path, 40, Deferred(inline=False))
    assert len(open_descriptors(tmp_path)) <= 13
    for log in logs:
        log.close()


def test_no_append_waits_for_a_sync_that_its_own_thread_has_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event loop starts syncs, opens files, and ends the syncs later: it once deadlocked here."""
    monkeypatch.setattr(segment_files, "ACTIVE", OpenFiles(8))
    first = filled_logs(tmp_path, 8, Deferred(inline=False))
    begun = [sync for log in first if (sync := log.begin_sync()) is not None]
    assert len(begun) == 8
    (tmp_path / "more").mkdir()

    later = filled_logs(tmp_path / "more", 30, Deferred(inline=False))

    assert len(open_descriptors(tmp_path)) <= 8 + 8 // 2 + 2
    for sync in begun:
        sync.end(0)
    assert all(len(log.segments) == 1 for log in [*first, *later])


def test_failed_sync_that_was_brought_forward_takes_its_own_log_offline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(segment_files, "ACTIVE", OpenFiles(2))
    disk = MemoryFileSystem()
    homes = [LogHome(disk, directory=f"/data/orders/{number}") for number in range(6)]
    logs = [home.create() for home in homes]
    disk.faults.fail("sync", errno.EIO, path="/data/orders/0/", times=1)
    for log in logs:
        assert isinstance(
            log.appender.append_as_leader(valid(batch_of([(b"k", b"v")])), now_ms=0), Appended
        )
    assert [log.offline_reason is not None for log in logs] == [True] + [False] * 5
    assert [len(home.failures) for home in homes] == [1] + [0] * 5


def test_pinned_file_is_not_closed_under_its_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_files, "SEALED", OpenFiles(2))
    home = LogHome(LocalFileSystem(), directory=str(tmp_path / "log"))
    (tmp_path / "log").mkdir()
    log = home.create()
    for _ in range(20):
        log.appender.append_as_leader(valid(batch_of([(b"k", b"v")])), now_ms=0)
        log.roll(0)
    log.advance_high_watermark(log.sync())
    with log.segments[0].pinned() as file:
        before = file.read_at(0, 61)
        assert len(read_all(log)) == 20
        assert file.read_at(0, 61) == before
    log.close()


@pytest.mark.parametrize("limit", [256, 400, 1024, 1 << 20])
def test_segments_leave_descriptors_for_sockets_whatever_the_limit(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for share in (SEALED, ACTIVE):
        monkeypatch.setattr(share, "files_max", share.files_max)
    share_descriptors(limit)
    assert SEALED.files_max + ACTIVE.files_max + ACTIVE.files_max // 2 <= limit * 5 // 8
    assert SEALED.files_max >= 32
    assert ACTIVE.files_max >= 85
