from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from random import Random

import pytest

from storage.files.errors import DiskError, LogOffline, StorageError, SyncFailed
from storage.files.paths import MANIFEST, join
from storage.log.log_service import LogService
from storage.log.new_files import NewFiles
from tests.harness.memory_fs import Loss, MemoryFileSystem

DIRECTORY = "/data/orders/0"


class NewLog:
    """The files of one new log, on a disk in memory."""

    def __init__(self, before_manifest: Callable[[], None] = lambda: None) -> None:
        self.disk = MemoryFileSystem()
        self.disk.make_directory("/data")
        self.disk.sync_directory("/")
        self.before_manifest = before_manifest
        self.failures: list[StorageError] = []
        self.made = 0
        self.service = LogService("orders-0", background=lambda _: None, on_failure=self.fail)
        self.files = NewFiles(self.disk, DIRECTORY, self.service, create=self.create)

    def fail(self, error: StorageError) -> None:
        self.failures.append(error)

    def create(self) -> None:
        self.made += 1
        self.disk.make_directory(DIRECTORY)
        self.before_manifest()
        self.disk.open(join(DIRECTORY, MANIFEST), create=True).close()

    def survives(self) -> bool:
        return self.disk.after_crash(Loss.EVERYTHING, Random(0)).exists(join(DIRECTORY, MANIFEST))


def test_the_files_are_made_once_and_a_crash_may_take_them() -> None:
    log = NewLog()
    assert not log.files.are_made
    log.files.make()
    log.files.make()
    assert log.files.are_made
    assert log.made == 1
    assert not log.files.are_safe
    assert not log.survives()


def test_files_that_could_not_be_made_are_made_by_a_later_call() -> None:
    log = NewLog()
    log.disk.faults.fail("open", errno.ENOSPC, path=MANIFEST)
    with pytest.raises(DiskError):
        log.files.make()
    assert not log.files.are_made
    log.files.make()
    assert log.files.are_made


def test_making_them_safe_makes_them_and_syncs_every_name_that_leads_to_them() -> None:
    log = NewLog()
    log.files.make_safe()
    assert log.files.are_safe
    assert log.survives()


def test_a_sync_alone_is_not_safe_until_the_directories_above_are_synced_too() -> None:
    log = NewLog()
    log.files.sync()
    assert not log.files.are_safe
    assert not log.survives()
    for above in ("/data/orders", "/data"):
        log.disk.sync_directory(above)
    log.files.mark_safe()
    assert log.files.are_safe
    assert log.survives()


def test_a_sync_of_the_disk_does_not_make_a_log_without_files_safe() -> None:
    log = NewLog()
    log.files.mark_safe()
    assert not log.files.are_safe


def test_a_failed_sync_is_final() -> None:
    log = NewLog()
    log.disk.faults.fail("sync", errno.EIO, path=MANIFEST)
    with pytest.raises(SyncFailed):
        log.files.sync()
    assert [type(error) for error in log.failures] == [SyncFailed]
    log.files.mark_safe()
    assert not log.files.are_safe
    with pytest.raises(SyncFailed):
        log.files.make_safe()


def test_a_deleted_topic_gets_no_files() -> None:
    log = NewLog()
    log.service.retire()
    log.files.give_up()
    with pytest.raises(LogOffline):
        log.files.make_safe()
    assert not log.disk.exists(DIRECTORY)


def test_a_deletion_waits_for_the_thread_that_is_making_the_files() -> None:
    is_making, may_go_on = threading.Event(), threading.Event()

    def slowly() -> None:
        is_making.set()
        assert may_go_on.wait(60)

    log = NewLog(slowly)
    maker = threading.Thread(target=log.files.make)
    maker.start()
    assert is_making.wait(60)
    log.service.retire()
    were_made: list[bool] = []

    def delete() -> None:
        log.files.give_up()
        were_made.append(log.files.are_made)

    deleter = threading.Thread(target=delete)
    deleter.start()
    may_go_on.set()
    deleter.join(60)
    maker.join(60)
    assert were_made == [True]
