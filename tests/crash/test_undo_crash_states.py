"""Crash a pass that can be undone, its undo and its expiry at every operation on the disk.

After each operation the disk is taken as a power cut may leave it (`tests/harness/memory_fs.py`). The
log that is opened from it must be
    - whole: each group of the pass is swapped or is not, oldest first; an undo happened or did not;
    - as it says: if a pass can be undone, its undo leads to the log before the pass;
    - clean: the directory has no segment that is neither listed nor kept;
    - right for readers: the aborted transactions are those of the segments.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from protocol.wire.numbers import Offset
from storage.files.paths import parse_segment_file
from storage.log.log import PartitionLog
from storage.log.opening import open_log
from storage.state.aborted_transactions import Row
from storage.undo.undo_file import EndReason
from tests.crash.test_cleaning_crash_states import Entry, append_transaction, entries_of
from tests.harness.compacted_log import (
    CONFIG,
    DIRECTORY,
    CompactedLog,
    identity,
    opening,
)
from tests.harness.memory_fs import Loss, MemoryFileSystem

TORN_STATES = 1
KEEPING = replace(CONFIG, segment_bytes=250, compaction_undo_ms=60_000)
View = tuple[list[Entry], list[Row]]
"""The records of a log and its aborted transactions."""


def built() -> CompactedLog:
    """A log of several groups with aborted transactions, of which one pass is kept already."""
    log = CompactedLog(KEEPING)
    for number in range(2):
        log.append((b"a", b"%d" % number * 20), (b"k%d" % number, b"1" * 20))
        append_transaction(log, b"a", aborted=True)
        log.roll()
    log.execute(log.plan())
    for number in range(3):
        log.append((b"a", b"new %d" % number * 10), (b"n%d" % number, b"1" * 60))
        append_transaction(log, b"b", aborted=number == 1)
        log.roll()
    return log


def view_of(log: PartitionLog) -> View:
    return entries_of(log), log._states.aborted.rows


class UndoSweep:
    """Takes crash states while a log changes, and opens each."""

    def __init__(self, log: CompactedLog) -> None:
        self.log = log
        self.random = Random(0)
        self.states_count = 0
        self.checked: set[frozenset[tuple[str, bytes]]] = set()
        self.seen: set[tuple[int, int]] = set()
        """How many passes could be undone, and how many records the log had."""
        self.below = log.log.passes_kept
        self.before = view_of(log.log)
        self.allowed: list[View] = []

    def begin(self, allowed: list[View]) -> None:
        """From now on crash after each operation; the log must then be one of these."""
        self.allowed = allowed
        self.log.fs.on_operation = lambda action, path: self.crash_here()
        self.crash_here()

    def end(self) -> None:
        self.crash_here()
        self.log.fs.on_operation = None

    def crash_here(self) -> None:
        for loss in (Loss.NOTHING, Loss.EVERYTHING, *[Loss.TORN] * TORN_STATES):
            self.states_count += 1
            fs = self.log.fs.after_crash(loss, self.random)
            names = fs.list(DIRECTORY)
            files = frozenset((name, fs.read_bytes(f"{DIRECTORY}/{name}")) for name in names)
            # Equal files lead to equal logs.
            if files not in self.checked:
                self.checked.add(files)
                self.check(fs)

    def check(self, fs: MemoryFileSystem) -> None:
        log = self.open(fs)
        view = view_of(log)
        assert view in self.allowed
        self.seen.add((len(log.passes_kept), len(view[0])))
        self.check_files(fs, log)
        while log.passes_kept:
            newest = log.passes_kept[-1]
            log.undo_pass(newest.number)
            if newest.number not in {each.number for each in self.below}:
                assert view_of(log) == self.before
            self.check_files(fs, log)
        undone = view_of(log)
        again = self.open(fs.after_crash(Loss.EVERYTHING, self.random))
        assert view_of(again) == undone

    def open(self, fs: MemoryFileSystem) -> PartitionLog:
        return open_log(fs, identity(), KEEPING, opening(now_ms=self.log.now_ms, leader_epoch=1))

    def check_files(self, fs: MemoryFileSystem, log: PartitionLog) -> None:
        files = [parse_segment_file(name) for name in fs.list(DIRECTORY)]
        names = {(each.base_offset, each.version) for each in files if each is not None}
        listed = {(each.base_offset, each.file_version) for each in log.segments}
        kept = {
            (row.base_offset, row.file_version) for each in log.passes_kept for row in each.sources
        }
        assert names == listed | kept


def swapped_views(log: CompactedLog) -> list[View]:
    """The log before a pass, after each of its swaps, and at its end."""
    undisturbed = CompactedLog(KEEPING)
    undisturbed.fs = log.fs.after_crash(Loss.NOTHING, Random(0))
    undisturbed.now_ms = log.now_ms
    undisturbed.log = open_log(
        undisturbed.fs, identity(), KEEPING, opening(now_ms=log.now_ms, leader_epoch=1)
    )
    views = [view_of(undisturbed.log)]
    versions = [list(undisturbed.log.segments)]

    def look(*_: object) -> None:
        if list(undisturbed.log.segments) != versions[-1]:
            versions.append(list(undisturbed.log.segments))
            views.append((entries_of(undisturbed.log), undisturbed.log._states.aborted.rows))

    undisturbed.fs.on_operation = look
    undisturbed.execute(undisturbed.plan())
    undisturbed.fs.on_operation = None
    views.append(view_of(undisturbed.log))
    return views


def with_pruned(views: list[View]) -> list[View]:
    """The same views; a crash between the last swap and what follows may show either list."""
    return views + [(entries, views[-1][1]) for entries, _ in views[-1:]]


def test_a_crash_at_any_operation_of_a_kept_pass_leaves_a_log_that_can_go_back() -> None:
    log = built()
    sweep = UndoSweep(log)
    views = swapped_views(log)
    assert len(views) > 3

    sweep.begin(with_pruned(views))
    log.execute(log.plan())
    sweep.end()

    assert sweep.states_count > 100
    assert {count for count, _ in sweep.seen} == {1, 2}


def test_a_crash_at_any_operation_of_an_undo_leaves_one_log_or_the_other() -> None:
    log = built()
    before = view_of(log.log)
    log.execute(log.plan())
    after = view_of(log.log)
    sweep = UndoSweep(log)
    sweep.below, sweep.before = log.log.passes_kept[:1], before

    sweep.begin([before, after])
    log.log.undo_pass(log.log.passes_kept[-1].number)
    sweep.end()

    assert view_of(log.log) == before
    assert sweep.states_count > 20
    assert {count for count, _ in sweep.seen} == {1, 2}


@pytest.mark.parametrize("is_expiry", [True, False])
def test_a_crash_while_what_is_kept_goes_keeps_it_as_a_whole_or_not_at_all(
    is_expiry: bool,
) -> None:
    log = built()
    before = view_of(log.log)
    log.now_ms += 10
    log.execute(log.plan())
    sweep = UndoSweep(log)
    sweep.below, sweep.before = log.log.passes_kept[:1], before

    sweep.begin([view_of(log.log)])
    if is_expiry:
        log.log.expire_kept(log.now_ms - 10 + KEEPING.compaction_undo_ms)
        assert len(log.log.passes_kept) == 1
    log.log.drop_passes_kept(EndReason.ERASED)
    sweep.end()

    assert sweep.states_count > 20
    assert {count for count, _ in sweep.seen} == ({0, 1, 2} if is_expiry else {0, 2})


def test_a_crash_while_deleted_records_end_an_undo_resurrects_nothing() -> None:
    log = built()
    log.execute(log.plan())
    start = log.log.passes_kept[-1].sources[1].end_offset
    after = view_of(log.log)
    sweep = UndoSweep(log)
    moved = ([each for each in after[0] if each[0] >= start], after[1])

    def check(fs: MemoryFileSystem) -> None:
        opened = sweep.open(fs)
        assert view_of(opened) in (after, moved)
        sweep.check_files(fs, opened)
        if opened.log_start_offset:
            for kept in opened.passes_kept:
                assert all(row.end_offset > start for row in kept.sources)

    sweep.check = check  # type: ignore[method-assign]
    sweep.begin([])
    log.log.delete_records(start)
    sweep.end()

    assert sweep.states_count > 20
    assert view_of(log.log) == moved


def test_a_crash_in_a_truncation_brings_back_nothing_that_it_cut() -> None:
    log = built()
    before = view_of(log.log)
    log.execute(log.plan())
    cut = log.log.segments[-1].base_offset - 2
    after = view_of(log.log)
    sweep = UndoSweep(log)
    sweep.below, sweep.before = log.log.passes_kept[:1], before
    records = [each for each in after[0] if each[0] < cut]

    sweep.begin([after, (records, [row for row in after[1] if row[2] < cut])])
    log.log.truncate_to(Offset(cut))
    sweep.end()

    assert entries_of(log.log) == records
    assert sweep.states_count > 20
    assert {count for count, _ in sweep.seen} == {0, 2}
