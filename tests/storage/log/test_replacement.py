"""A log whose records a copy replaces."""

from __future__ import annotations

import dataclasses
from random import Random

from protocol.wire.numbers import Offset
from storage.files.paths import copy_directory
from storage.log.log import Appended, PartitionLog
from storage.log.opening import create_log
from tests.harness.log_builder import batch_of, run_of, valid
from tests.harness.log_home import LogHome, read_all
from tests.harness.memory_fs import Loss, MemoryFileSystem


def old_log(home: LogHome, *, batches: int = 4) -> PartitionLog:
    log = home.create(epoch=5)
    for number in range(batches):
        batch = valid(batch_of([(b"old", b"%d" % number)]))
        assert isinstance(log.append_as_leader(batch, now_ms=0), Appended)
    log.advance_high_watermark(log.sync())
    return log


def begin_copy(home: LogHome, log: PartitionLog, start_offset: int) -> PartitionLog:
    identity = dataclasses.replace(home.identity, directory=copy_directory(log.directory))
    home.fs.remove_tree(identity.directory)
    opening = home.opening(epoch=log.leader_epoch, is_clean=False, now_ms=0)
    copy = create_log(home.fs, identity, log.config, opening)
    copy.truncate_fully_and_start_at(Offset(start_offset))
    return copy


def filled_copy(home: LogHome, log: PartitionLog, offsets: list[int]) -> PartitionLog:
    copy = begin_copy(home, log, offsets[0])
    for offset in offsets:
        batch = batch_of([(b"new", b"%d" % offset)], base_offset=offset, leader_epoch=3)
        copy.append_as_follower(run_of(batch), now_ms=0)
    copy.advance_high_watermark(copy.sync())
    return copy


def values(log: PartitionLog) -> list[tuple[int, bytes | None]]:
    return [(record.offset, record.value) for record in read_all(log)]


def test_log_has_the_records_of_the_copy() -> None:
    home = LogHome(MemoryFileSystem())
    log = old_log(home)
    copy = filled_copy(home, log, [2, 5, 6, 30])
    assert log.replace_with(copy, puts_aside=False) is None
    expected = [(offset, b"%d" % offset) for offset in (2, 5, 6, 30)]
    assert values(log) == expected
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (2, 31, 31)
    assert log.clean_offset == 2
    left = LogHome(home.fs.after_crash(Loss.EVERYTHING, Random(0)))  # type: ignore[attr-defined]
    assert values(left.open()) == expected
    log.append_as_leader(valid(batch_of([(b"k", b"31")])), now_ms=0)
    log.advance_high_watermark(log.sync())
    assert values(log) == [*expected, (31, b"31")]


def test_old_log_is_put_aside_as_a_whole_log() -> None:
    home = LogHome(MemoryFileSystem())
    log = old_log(home)
    before = values(log)
    aside = log.replace_with(filled_copy(home, log, [1, 2]), puts_aside=True)
    assert aside == f"{home.identity.directory}.aside.4"
    fs = home.fs.after_crash(Loss.EVERYTHING, Random(0))  # type: ignore[attr-defined]
    assert values(LogHome(fs, directory=aside).open(is_clean=True)) == before
    assert values(LogHome(fs, directory=aside).open()) == before
