"""What a log's manifest says of the log as a whole: whether all its records are copies."""

from __future__ import annotations

import errno
from random import Random

import pytest

from protocol.wire.numbers import Offset
from storage.files.errors import LogOffline, NoSpace
from storage.log.log import PartitionLog
from tests.harness.log_builder import batch_of, valid
from tests.harness.log_home import LogHome
from tests.harness.memory_fs import Loss, MemoryFileSystem

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


def test_a_log_is_no_copy_until_that_is_declared_and_the_declaration_is_durable() -> None:
    disk, _, log = made()
    assert not log.is_copy
    for is_copy in (True, False, True):
        log.declare_copy(is_copy=is_copy)
        assert log.is_copy is is_copy
        assert after_power_cut(disk).is_copy is is_copy


def test_a_log_that_was_declared_a_copy_stays_one_whatever_else_is_committed() -> None:
    _, home, log = made()
    log.declare_copy(is_copy=True)
    append(log, 6)
    log.roll(0)
    log.delete_records(Offset(2))
    log.truncate_to(Offset(4))
    assert log.is_copy
    log.truncate_fully_and_start_at(Offset(9))
    assert log.is_copy
    append(log)
    log.close()
    for is_clean in (True, False):
        found = home.open(is_clean=is_clean)
        assert (found.is_copy, found.log_end_offset) == (True, 12)


def test_a_declaration_that_repeats_what_is_known_writes_nothing() -> None:
    disk, _, log = made()
    log.declare_copy(is_copy=True)
    done: list[str] = []
    disk.on_operation = lambda action, path: done.append(f"{action} {path}")
    log.declare_copy(is_copy=True)
    assert done == []


def test_a_declaration_that_a_full_disk_refuses_changes_nothing() -> None:
    disk, _, log = made()
    disk.faults.fail("write", errno.ENOSPC, path="/0/manifest")
    with pytest.raises(NoSpace):
        log.declare_copy(is_copy=True)
    assert (log.is_copy, log.offline_reason) == (False, None)
    append(log)
    assert not after_power_cut(disk).is_copy
    log.declare_copy(is_copy=True)
    assert after_power_cut(disk).is_copy


def test_a_log_out_of_service_is_not_declared() -> None:
    _, _, log = made()
    log.go_offline("a reason")
    with pytest.raises(LogOffline):
        log.declare_copy(is_copy=True)
    assert not log.is_copy


def test_nobody_knows_whose_records_are_in_a_log_without_its_manifest() -> None:
    disk, _, log = made()
    append(log)
    log.declare_copy(is_copy=True)
    disk.write_bytes(MANIFEST, b"damaged")
    found = after_power_cut(disk)
    assert (found.is_copy, found.log_end_offset) == (False, 3)
