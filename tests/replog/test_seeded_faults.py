"""The simulation catches faults that were put into replog: each of these makes some seed fail."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

import pytest

from replog import checkpoints, in_log
from replog.checkpoints import Checkpoint
from replog.compactor import Placement
from replog.entry import Entry, Kind
from replog.following import Follower
from replog.in_log import InLog
from replog.independent import Independent
from replog.leader_external import LeaderExternal
from replog.machine import Row
from replog.offline_merge.merging_snapshotter import MergeInProgress
from replog.replica import Replica, Role
from storage.files.errors import StorageError
from tests.harness.memory_fs import MemoryFile
from tests.harness.replog_machine import KeyValueMachine
from tests.harness.replog_world import Node, World

SEEDS = int(os.environ.get("REPLOG_FAULT_SEEDS", "150"))
STEPS = 400

Patch = pytest.MonkeyPatch


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: Patch) -> None:
    monkeypatch.setattr(checkpoints, "BLOCK_BYTES", 150)
    monkeypatch.setattr(in_log.InLog, "chunk_bytes", 200)


def end_entry_before_the_snapshots_sync(patch: Patch) -> None:
    sync = MemoryFile.sync

    def careless(self: MemoryFile) -> None:
        if not self.path.endswith(".part"):
            sync(self)

    patch.setattr(MemoryFile, "sync", careless)


def snapshot_past_the_commit_index(patch: Patch) -> None:
    opened = Replica.open

    def careless(self: Replica) -> None:
        opened(self)
        self.confirm(self.log.end)

    patch.setattr(Replica, "open", careless)


def prefix_dropped_before_the_directorys_sync(patch: Patch) -> None:
    finish = Independent.finish

    def careless(self: Independent) -> None:
        assert self.writer is not None
        snapshot = self.writer.snapshot
        self.replica.checkpoints.remove_before(snapshot)
        self.replica.log.drop_before(snapshot.end - self.settings.catchup_entries)
        finish(self)

    patch.setattr(Independent, "finish", careless)


def chunks_of_two_snapshots_mixed(patch: Patch) -> None:
    begin = InLog.begin

    def careless(self: InLog) -> None:
        """Continue under the START of a snapshot that was given up."""
        start, chunks = self._start_index, self._chunks
        is_open = self.replica._open_start == start
        begin(self)
        if is_open and chunks:
            self._start_index, self._chunks = start, chunks

    patch.setattr(InLog, "begin", careless)


def install_without_checking_already_have_it(patch: Patch) -> None:
    patch.setattr(Follower, "_has", lambda *_: False)


class ForgetfulMachine(KeyValueMachine):
    """Keeps old rows when it is restored."""

    def restore(self, rows: Iterable[Row]) -> None:
        for key, value in rows:
            if key in self.rows:
                self.apply(0, key)
            self._put(key, value)


def restore_not_clearing_old_state(patch: Patch) -> None:
    """Install into the machine that is there, which does not forget its rows."""
    old = Follower._install

    def careless(self: Follower, part: object) -> None:
        self._new_machine = lambda: self._replica.machine
        old(self, part)  # type: ignore[arg-type]

    patch.setattr(Follower, "_install", careless)
    patch.setattr(World, "new_machine", ForgetfulMachine)


def digest_of_the_wrong_index(patch: Patch) -> None:
    applied = LeaderExternal.applied

    def careless(self: LeaderExternal, entry: Entry) -> None:
        if entry.kind is Kind.END:
            self._digest = self.replica.machine.digest()
        applied(self, entry)

    patch.setattr(LeaderExternal, "applied", careless)


def learner_promoted_while_installing(patch: Patch) -> None:
    def careless(self: World, node: Node) -> bool:
        log = node.follower._incoming or node.replica.log
        is_installing = node.replica.role is Role.INSTALLING
        return is_installing or log.end == self.model.end

    lead = Replica.lead

    def led(self: Replica, term: int) -> None:
        if self.role is Role.INSTALLING:
            self.role = Role.LEARNER
        lead(self, term)

    patch.setattr(World, "may_lead", careless)
    patch.setattr(Replica, "lead", led)


def child_believed_without_reading_its_file(patch: Patch) -> None:
    def careless(self: MergeInProgress) -> None:
        digest, size = self._plan.digest, self._size
        self._checkpoint = Checkpoint(
            snapshot=self.snapshot, size=size, digest=digest, checksum=b""
        )

    patch.setattr(MergeInProgress, "_check", careless)


FAULTS: dict[Callable[[Patch], None], Placement] = {
    end_entry_before_the_snapshots_sync: Placement.LEADER_EXTERNAL,
    snapshot_past_the_commit_index: Placement.INDEPENDENT,
    prefix_dropped_before_the_directorys_sync: Placement.INDEPENDENT,
    chunks_of_two_snapshots_mixed: Placement.IN_LOG,
    install_without_checking_already_have_it: Placement.INDEPENDENT,
    restore_not_clearing_old_state: Placement.INDEPENDENT,
    digest_of_the_wrong_index: Placement.LEADER_EXTERNAL,
    learner_promoted_while_installing: Placement.IN_LOG,
    child_believed_without_reading_its_file: Placement.INDEPENDENT,
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_the_simulation_catches_a_seeded_fault(
    fault: Callable[[Patch], None], monkeypatch: Patch
) -> None:
    fault(monkeypatch)

    for seed in range(SEEDS):
        world = World(seed, FAULTS[fault])
        try:
            world.run(STEPS)
            world.settle()
        except (AssertionError, StorageError):
            return
    pytest.fail(f"{SEEDS} seeds did not catch it")
