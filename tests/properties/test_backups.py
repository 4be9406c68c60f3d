"""Histories of changes, snapshots, backups, interruptions, prunes and restores, against a model.

The model has the bytes of every file of each snapshot that was backed up. Each backup that was not
pruned must be sound and lead to exactly these bytes, and after a prune the repository must have no
object beside theirs.
"""

from __future__ import annotations

import errno
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from storage.backup import make_backup
from storage.backup.local_store import read_label
from storage.backup.prune_backups import Keeping, plan_prune, prune
from storage.files.errors import DiskError
from tests.harness.backups import PLACE, made, opened, problems, restored_contents
from tests.harness.examples import examples
from tests.harness.memory_fs import MemoryFileSystem
from tests.harness.snapshot_world import CREATED_MS, SnapshotWorld


class BackedUpBroker(RuleBasedStateMachine):
    """Log directories that change, and the repository of their backups."""

    def __init__(self) -> None:
        super().__init__()
        self.world = SnapshotWorld(MemoryFileSystem(), Random(0))
        self.world.create_topic("orders")
        self.disk = MemoryFileSystem()
        self.backups: list[str] = []

    # ---------------------------------------------------------------- operations

    @rule(count=st.integers(1, 6))
    def change(self, count: int) -> None:
        for _ in range(count):
            self.world.change()

    @rule(name=st.sampled_from(["prices", "users"]))
    def create_or_delete(self, name: str) -> None:
        if any(log.topic == name for log in self.world.logs):
            self.world.delete_topic(name)
        else:
            self.world.create_topic(name)

    @rule()
    def back_up(self) -> None:
        path = self.world.snapshot()
        self.backups.append(made(self.world.fs, path, self.disk).index.id)

    @rule(
        number=st.sampled_from([errno.EIO, errno.ENOSPC, errno.EROFS]), operation=st.integers(1, 60)
    )
    def fail_to_back_up(self, number: int, operation: int) -> None:
        """Let one operation of a backup fail, then let the backup be made after all."""
        path = self.world.snapshot()
        self.disk.faults.fail_nth(operation, number)
        try:
            made(self.world.fs, path, self.disk)
        except DiskError:
            self.disk.faults.heal()
            if path.split("/")[-2] not in ids_on(self.disk):
                made(self.world.fs, path, self.disk)
        self.disk.faults.heal()
        self.backups.append(path.split("/")[-2])

    @precondition(lambda self: self.backups)
    @rule(keep=st.integers(1, 4))
    def prune(self, keep: int) -> None:
        store = opened(self.disk)
        prune(store, plan_prune(store, Keeping(count=keep), now_ms=CREATED_MS))
        self.backups = self.backups[-keep:]
        needed = {data for each in self.backups for data in self.world.contents[each].values()}
        assert sum(1 for _ in store.objects()) == len(needed)

    # ---------------------------------------------------------------- what must hold

    @precondition(lambda self: self.backups)
    @invariant()
    def every_backup_is_sound_and_restores_its_snapshot(self) -> None:
        store = opened(self.disk)
        assert store.ids() == self.backups
        assert names_in(self.disk, f"{PLACE}/staging") == []
        assert problems(store) == []
        for each in self.backups[-3:]:
            assert restored_contents(store, each) == self.world.contents[each]


def ids_on(disk: MemoryFileSystem) -> list[str]:
    return [] if read_label(disk, PLACE) is None else opened(disk).ids()


def names_in(disk: MemoryFileSystem, path: str) -> list[str]:
    return disk.list(path) if disk.exists(path) else []


def test_backups_restore_what_their_snapshots_had(monkeypatch: pytest.MonkeyPatch) -> None:
    # So that some files take several steps.
    monkeypatch.setattr(make_backup, "CHUNK_BYTES", 1000)
    run_state_machine_as_test(
        BackedUpBroker,
        settings=settings(max_examples=examples(40), stateful_step_count=25, deadline=None),
    )
