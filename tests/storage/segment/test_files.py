"""A segment's files are never closed while they are in use, nor with unsynced bytes."""

from __future__ import annotations

import dataclasses
import errno
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from protocol.wire.numbers import Offset
from storage.files.errors import SegmentRemoved, SyncFailed
from storage.files.files import File
from storage.files.local_files import LocalFileSystem
from storage.files.open_files import OpenFiles
from storage.files.paths import LOG
from storage.log.log import PartitionLog
from storage.segment import files as segment_files
from storage.segment.files import SegmentFiles
from tests.harness.log_builder import batch_of, valid
from tests.harness.log_home import SMALL, Deferred, LogHome, read_all

LOGS = 8
BATCHES = 250


def new_files(folder: Path, fs: LocalFileSystem | None = None) -> SegmentFiles:
    files = SegmentFiles(
        fs or LocalFileSystem(), str(folder), Offset(0), 1, background=Deferred(), is_settled=False
    )
    files.create()
    return files


def test_file_is_idle_when_it_is_not_pinned_and_every_write_is_synced(tmp_path: Path) -> None:
    files = new_files(tmp_path)
    files.append([b"a"])
    assert not files.close_if_idle()
    files.sync()
    with files.pinned():
        assert not files.close_if_idle()
    assert files.close_if_idle()
    files.append([b"b"])
    with files.pinned() as file:
        assert file.read_at(0, 9) == b"ab"


def test_failed_sync_is_final_for_concurrent_and_later_syncs(tmp_path: Path) -> None:
    """The kernel reports a lost write once: the next fsync of the same file succeeds."""
    files = new_files(tmp_path)
    files.append([b"a"])
    is_syncing, may_fail = threading.Event(), threading.Event()
    failures: list[SyncFailed] = []

    def failing_once() -> None:
        if is_syncing.is_set():
            return
        is_syncing.set()
        assert may_fail.wait(30)
        raise SyncFailed("sync", "segment", errno.EIO, "Input/output error")

    def sync() -> None:
        try:
            files.sync()
        except SyncFailed as error:
            failures.append(error)

    with files.pinned() as file:
        files._file = Spy(file, sync=failing_once)  # type: ignore[assignment]
    threads = [threading.Thread(target=sync) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert is_syncing.wait(30)
    may_fail.set()
    for thread in threads:
        thread.join()
    sync()

    assert len(failures) == 4
    assert not files.close_if_idle()


def test_write_that_begins_during_a_sync_keeps_the_file_open(tmp_path: Path) -> None:
    files = new_files(tmp_path)
    files.append([b"a"])
    with files.pinned() as file:
        sync = file.sync

        def slow_sync() -> None:
            sync()
            files.append([b"b"])

        files._file = Spy(file, sync=slow_sync)  # type: ignore[assignment]
    files.sync()
    assert not files.close_if_idle()
    files.sync()
    assert not files.close_if_idle()
    files._file = file
    files.sync()
    assert files.close_if_idle()


class Spy:
    """A file whose sync is replaced by another function."""

    def __init__(self, file: File, *, sync: Callable[[], None]) -> None:
        self._file = file
        self.sync = sync

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)


def test_file_that_was_opened_before_the_last_appends_is_not_used(tmp_path: Path) -> None:
    """Its size would be out of date, and the next append would overwrite the file's end."""

    class SlowToOpen(LocalFileSystem):
        meanwhile: Callable[[], None] | None = None

        def open(self, path: str, *, create: bool = False) -> File:  # type: ignore[override]
            file = super().open(path, create=create)
            meanwhile, self.meanwhile = self.meanwhile, None
            if meanwhile is not None:
                meanwhile()
            return file

    fs = SlowToOpen()
    files = new_files(tmp_path, fs)
    files.append([b"a"])
    files.sync()
    assert files.close_if_idle()

    def append_and_close() -> None:
        files.append([b"b"])
        files.sync()
        assert files.close_if_idle()

    fs.meanwhile = append_and_close
    files.append([b"c"])

    assert Path(files.path(LOG)).read_bytes() == b"abc"


def test_retired_files_go_with_the_last_pin(tmp_path: Path) -> None:
    files = new_files(tmp_path)
    files.append([b"a"])
    with files.pinned() as file:
        files.retire()
        assert file.read_at(0, 1) == b"a"
        with files.pinned():
            assert Path(files.path(LOG)).exists()
    assert not Path(files.path(LOG)).exists()
    with pytest.raises(SegmentRemoved):
        files.pin()


def test_a_file_that_a_truncation_removed_before_it_was_opened_is_removed_not_missing(
    tmp_path: Path,
) -> None:
    files = new_files(tmp_path)
    files.close()
    files.pin()
    files.remove_at_once()

    with pytest.raises(SegmentRemoved):
        files.open()


def test_appends_reads_and_syncs_race_with_closings_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for share in ("ACTIVE", "SEALED"):
        monkeypatch.setattr(segment_files, share, OpenFiles(3))
    logs = [home_in(tmp_path / str(number)).create() for number in range(LOGS)]
    is_over = threading.Event()
    failures: list[BaseException] = []

    def until_over(work: Callable[[PartitionLog], object]) -> threading.Thread:
        choices = random.Random(work.__name__)

        def run() -> None:
            try:
                while not is_over.is_set():
                    work(choices.choice(logs))
            except BaseException as error:  # noqa: BLE001
                failures.append(error)

        return threading.Thread(target=run)

    synced: dict[PartitionLog, Offset] = {}

    def sync(log: PartitionLog) -> None:
        synced[log] = log.sync()

    threads = [until_over(work) for work in (sync, sync, read_all, read_all)]
    for thread in threads:
        thread.start()
    choices = random.Random(0)
    for number in range(BATCHES):
        log = choices.choice(logs)
        log.appender.append_as_leader(valid(batch_of([(b"%d" % number, bytes(60))])), now_ms=0)
        # Only the appending thread advances the high watermark, as in the broker.
        log.advance_high_watermark(synced.get(log, Offset(0)))
    is_over.set()
    for thread in threads:
        thread.join()
    assert not failures, failures

    for log in logs:
        log.advance_high_watermark(log.sync())
    keys = sorted(int(record.key or b"") for log in logs for record in read_all(log))
    assert keys == list(range(BATCHES))
    for log in logs:
        log.close()


def home_in(directory: Path) -> LogHome:
    directory.mkdir()
    config = dataclasses.replace(SMALL, segment_bytes=2000)
    return LogHome(LocalFileSystem(), directory=str(directory), config=config)
