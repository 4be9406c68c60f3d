"""Stop a log at every operation of the disk while a copy replaces it, and recover it.

After each crash the log is the old one or the copy, whole: records, epochs, producers, transactions.
Whenever it is the copy, the old log is beside it if it was to be put aside. `replacing_workload.py` has
the histories; KOMPAKT_CRASH_STATES and KOMPAKT_CRASH_SEED are as in `test_storage_crash_states.py`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from protocol.wire.numbers import Offset
from storage.formats.manifest import UNKNOWN_OFFSET
from storage.log.commits import LogCommits
from storage.log.log import PartitionLog
from storage.log.on_disk import look_at_log
from storage.log.replacement import LogParts, Replacement
from storage.recovery import interrupted_replacement
from storage.segment.files import SegmentFiles
from storage.state.log_states import LogStates
from tests.crash.expected import Content, check_epochs, check_timestamps, read_content
from tests.crash.replacing_workload import ReplacingWorkload
from tests.crash.sweep import Sweep
from tests.harness.log_home import LogHome
from tests.harness.memory_fs import MemoryFileSystem

Patch = pytest.MonkeyPatch
STATES = int(os.environ.get("KOMPAKT_CRASH_STATES", "4000")) // 10
SEED = int(os.environ.get("KOMPAKT_CRASH_SEED", "1"))


class ReplacementSweep(Sweep):
    """The crash states of one history; only those in which a copy replaces the log count."""

    def __init__(self, seed: int, *, states_max: int) -> None:
        super().__init__(seed, states_max=states_max)
        self.workload = self.replacing = ReplacingWorkload(seed, self._crash_while_replacing)
        self.as_before = 0
        self.as_copied = 0

    def _crash_while_replacing(self, action: str, path: str) -> None:
        if self.replacing.copy is not None or "resync" in path:
            self._crash(action, path)

    def _check(self, left: MemoryFileSystem, *, nested: bool) -> None:
        seen = None
        if not nested:
            seen = look_at_log(left, self.workload.home.identity)
        super()._check(left, nested=nested)
        if seen is not None:
            log = LogHome(left).open()
            assert (seen.log_start_offset, seen.end_offset, seen.last_stable_offset) == (
                log.log_start_offset,
                log.log_end_offset,
                log.last_stable_offset,
            )

    def _check_log(self, log: PartitionLog) -> Content:
        if not self.replacing.check_recovered(log):
            self.as_before += 1
            return super()._check_log(log)
        self.as_copied += 1
        content = read_content(log)
        check_timestamps(log, content, self.replacing.crash_random)
        check_epochs(log)
        return content


def test_a_crash_leaves_the_old_log_or_the_copy(capsys: pytest.CaptureFixture[str]) -> None:
    states, before, copied, nested, seed = 0, 0, 0, 0, SEED
    while states < STATES:
        sweep = ReplacementSweep(seed, states_max=STATES - states)
        states += sweep.run()
        before += sweep.as_before
        copied += sweep.as_copied
        nested += sweep.nested_states
        seed += 1
    with capsys.disabled():
        sys.stdout.write(
            f"\n{states} crash states, and {nested} in the middle of a recovery, seeds {SEED} to"
            f" {seed - 1}: the old log {before} times, the copy {copied} times\n"
        )
    assert min(before, copied) > states // 10


# ---------------------------------------------------------------- bugs put in on purpose


def swap_before_the_sync_of_the_new_segments(patch: Patch) -> None:
    def careless(self: LogParts) -> None:
        self.states.load()
        patch.setattr(SegmentFiles, "sync", lambda _: None)
        self.commits.list_rolls()
        index = self.segments.active.index()
        self.segments.active.write_index_up_to(index, index.mark)
        patch.setattr(SegmentFiles, "sync", SYNC)

    patch.setattr(LogParts, "settle", careless)


def old_state_files_believed_after_a_crash(patch: Patch) -> None:
    patch.setattr(interrupted_replacement, "finish", interrupted_replacement.finish_aside)


def old_snapshots_kept(patch: Patch) -> None:
    def careless(self: LogStates, end_offset: Offset) -> None:
        self.write_snapshot(end_offset, self.producers)
        self.write_epochs()

    patch.setattr(LogStates, "write_replaced", careless)


def old_epochs_and_aborted_transactions_kept(patch: Patch) -> None:
    def careless(self: LogStates, end_offset: Offset) -> None:
        self._epochs_are_dirty = self._aborted_are_dirty = False
        write(self, end_offset)

    write = LogStates.write_replaced
    patch.setattr(LogStates, "write_replaced", careless)


def old_segments_kept_after_a_crash(patch: Patch) -> None:
    """As if the manifest did not say where the new log ends."""
    _patch_commit(patch, truncate_to=UNKNOWN_OFFSET)


def manifest_does_not_say_that_the_states_are_foreign(patch: Patch) -> None:
    _patch_commit(patch, has_foreign_states=False)


def id_of_the_copy_committed_later(patch: Patch) -> None:
    """With the next manifest, so that a crash before it would let a resync begin again."""
    commit, kept = LogCommits.commit, list[Any]()

    def careless(self: LogCommits, *args: Any, **names: Any) -> None:
        if names.get("has_foreign_states"):
            kept.append(names.pop("copy_id"))
        elif kept:
            names["copy_id"] = kept.pop()
        commit(self, *args, **names)

    patch.setattr(LogCommits, "commit", careless)


def source_remembered_in_memory_only(patch: Patch) -> None:
    def careless(self: LogCommits, copied_from: UUID) -> None:
        self.copied_from = copied_from

    patch.setattr(LogCommits, "remember_source", careless)


def source_of_the_old_log_kept_for_the_copy(patch: Patch) -> None:
    commit = LogCommits.commit

    def careless(self: LogCommits, *args: Any, **names: Any) -> None:
        if names.get("has_foreign_states"):
            names["copied_from"] = self.copied_from
        commit(self, *args, **names)

    patch.setattr(LogCommits, "commit", careless)


def _patch_commit(patch: Patch, **others: Any) -> None:
    commit = LogCommits.commit

    def careless(self: LogCommits, *args: Any, **names: Any) -> None:
        commit(self, *args, **(names | others if names.get("has_foreign_states") else names))

    patch.setattr(LogCommits, "commit", careless)


def old_segments_kept(patch: Patch) -> None:
    patch.setattr(SegmentFiles, "remove_at_once", SegmentFiles.close)
    patch.setattr(LogCommits, "remove_unlisted", lambda _: None)


def aside_named_before_the_commit(patch: Patch) -> None:
    put_aside = Replacement._put_aside

    def careless(self: Replacement) -> None:
        put_aside(self)
        interrupted_replacement.finish_aside(self._fs, self._log.identity.directory)

    patch.setattr(Replacement, "_put_aside", careless)


def aside_not_synced(patch: Patch) -> None:
    put_aside = Replacement._put_aside

    def careless(self: Replacement) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(MemoryFileSystem, "sync_directory", lambda *_: None)
            put_aside(self)

    patch.setattr(Replacement, "_put_aside", careless)


def aside_forgotten_by_recovery(patch: Patch) -> None:
    patch.setattr(interrupted_replacement, "finish_aside", lambda *_: None)


def copy_left_by_recovery(patch: Patch) -> None:
    patch.setattr(interrupted_replacement, "remove_unfinished", lambda *_: None)


SYNC = SegmentFiles.sync
BUGS = (
    swap_before_the_sync_of_the_new_segments,
    old_state_files_believed_after_a_crash,
    old_snapshots_kept,
    old_epochs_and_aborted_transactions_kept,
    old_segments_kept_after_a_crash,
    manifest_does_not_say_that_the_states_are_foreign,
    id_of_the_copy_committed_later,
    source_remembered_in_memory_only,
    source_of_the_old_log_kept_for_the_copy,
    old_segments_kept,
    aside_named_before_the_commit,
    aside_not_synced,
    aside_forgotten_by_recovery,
    copy_left_by_recovery,
)


@pytest.mark.parametrize("inject", BUGS)
def test_the_sweep_catches(inject: Callable[[Patch], None], monkeypatch: Patch) -> None:
    inject(monkeypatch)

    def is_caught(seed: int) -> bool:
        try:
            ReplacementSweep(seed, states_max=1000).run()
        except Exception:  # noqa: BLE001 - a history that cannot continue has also caught it
            return True
        return False

    assert any(is_caught(seed) for seed in range(1, 30))
