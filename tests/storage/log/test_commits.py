"""What a log's manifest says of the log as a whole: which source had all its records."""

from __future__ import annotations

import errno
from random import Random
from uuid import UUID

import pytest

from protocol.wire.numbers import Offset
from storage.files.errors import LogOffline, NoSpace
from storage.log.log import PartitionLog
from tests.harness.log_builder import batch_of, valid
from tests.harness.log_home import LogHome
from tests.harness.memory_fs import Loss, MemoryFileSystem

FIRST, SECOND = UUID(int=1), UUID(int=2)
MANIFEST = "/data/orders/0/manifest"


def made() -> tuple[MemoryFileSystem, LogHome, PartitionLog]:
    disk = MemoryFileSystem()
    home = LogHome(disk)
    return disk, home, home.create()


def after_power_cut(disk: MemoryFileSystem) -> PartitionLog:
    return LogHome(disk.after_crash(Loss.EVERYTHING, Random(0))).open()


def append(log: PartitionLog, count: int = 3) -> None:
    for _ in range(count):
        log.appender.append_as_leader(valid(batch_of([(b"k", b"v" * 200)])), now_ms=0)
    log.advance_high_watermark(log.sync())


def test_a_log_has_no_known_source_until_one_is_remembered_durably() -> None:
    disk, _, log = made()
    assert log.copied_from is None
    for name in (FIRST, SECOND):
        log.remember_source(name)
        assert log.copied_from == name
        assert after_power_cut(disk).copied_from == name


def test_a_source_stays_remembered_whatever_else_is_committed() -> None:
    _, home, log = made()
    log.remember_source(FIRST)
    append(log, 6)
    log.roll(0)
    log.delete_records(Offset(2))
    log.truncate_to(Offset(4))
    assert log.copied_from == FIRST
    log.truncate_fully_and_start_at(Offset(9))
    assert log.copied_from == FIRST
    append(log)
    log.close()
    for is_clean in (True, False):
        found = home.open(is_clean=is_clean)
        assert (found.copied_from, found.log_end_offset) == (FIRST, 12)


def test_what_is_remembered_already_writes_nothing() -> None:
    disk, _, log = made()
    log.remember_source(FIRST)
    done: list[str] = []
    disk.on_operation = lambda action, path: done.append(f"{action} {path}")
    log.remember_source(FIRST)
    assert done == []


def test_a_full_disk_leaves_what_was_remembered_before() -> None:
    disk, _, log = made()
    disk.faults.fail("write", errno.ENOSPC, path="/0/manifest")
    with pytest.raises(NoSpace):
        log.remember_source(FIRST)
    assert (log.copied_from, log.offline_reason) == (None, None)
    append(log)
    assert after_power_cut(disk).copied_from is None
    log.remember_source(FIRST)
    assert after_power_cut(disk).copied_from == FIRST


def test_a_log_out_of_service_remembers_nothing() -> None:
    _, _, log = made()
    log.go_offline("a reason")
    with pytest.raises(LogOffline):
        log.remember_source(FIRST)
    assert log.copied_from is None


def test_a_log_without_its_manifest_has_no_known_source() -> None:
    disk, _, log = made()
    append(log)
    log.remember_source(FIRST)
    disk.write_bytes(MANIFEST, b"damaged")
    found = after_power_cut(disk)
    assert (found.copied_from, found.log_end_offset) == (None, 3)
