"""Crashes the metadata store at every disk operation, drops unsynced data, and reopens it."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from replog.trigger import CompactionSettings
from server.metadata.log import MetadataLog
from server.metadata.machine import Operation
from server.metadata.old_files import State
from tests.harness.memory_fs import Loss, MemoryFileSystem
from tests.harness.old_metadata import write_old_log, write_old_snapshot

DIRECTORY = "/data/metadata"
LOSSES = (Loss.EVERYTHING, Loss.NOTHING, Loss.TORN, Loss.TORN, Loss.TORN)
SETTINGS = CompactionSettings(u=1.0, floor_bytes=6_000, catchup_entries=3, segment_bytes=4_000)

Content = dict[str, str]


def recovered(disk: MemoryFileSystem) -> tuple[MetadataLog, int, Content]:
    """Open the log. Returns its revision and the contents of the map."""
    log = MetadataLog(disk, DIRECTORY, SETTINGS)
    log.recover()
    content = {key: entry.value for key, entry in log.machine.entries.items()}
    return log, log.machine.revision, content


def write(log: MetadataLog, operations: list[Operation]) -> None:
    """Append a transaction, apply it, and take a snapshot if one is due."""
    entry = log.append(operations)
    log.machine.run(operations)
    log.applied(entry)


def snapshot(log: MetadataLog) -> None:
    log.begin_snapshot()
    log.write_snapshot()
    log.finish_snapshot()


def apply(content: Content, operations: list[Operation]) -> None:
    for verb, key, *rest in operations:
        if verb == "put":
            content[key] = rest[0]
        else:
            content.pop(key, None)


class Workload:
    """A random history of one store, with the states that a crash may leave at any moment."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.crash_random = Random(seed + 1)
        self.disk = MemoryFileSystem()
        self.disk.make_directory("/data")
        self.disk.sync_directory("/")
        self.possible: list[tuple[int, Content]] = [(0, {})]
        """Returns the acknowledged state, and the one that is being written."""
        self.states = self.snapshots = 0
        self.disk.on_operation = self.crash

    def run(self, steps: int) -> None:
        log, _, _ = recovered(self.disk)
        for _ in range(steps):
            revision, content = self.possible[-1]
            operations = self.transaction()
            after = dict(content)
            apply(after, operations)
            self.possible = [(revision, content), (revision + 1, after)]
            write(log, operations)
            self.possible = [(revision + 1, after)]
            if log.due() is not None:
                snapshot(log)
                self.snapshots += 1
            if self.random.random() < 0.05:
                log.close()
                log, *found = recovered(self.disk)
                assert found == [revision + 1, after]

    def transaction(self) -> list[Operation]:
        operations: list[Operation] = []
        for _ in range(self.random.randrange(1, 4)):
            key = f"/{self.random.randrange(6)}"
            value = "x" * self.random.choice((1, 40, 700, 5000))
            operations.append(
                ["delete", key] if self.random.random() < 0.2 else ["put", key, value, 0]
            )
        return operations

    def crash(self, *_: Any) -> None:
        """Lose power here in every way. Each result must open, twice, as one of the possible states."""
        for loss in LOSSES:
            self.states += 1
            left = self.disk.after_crash(loss, self.crash_random)
            log, revision, content = recovered(left)
            assert (revision, content) in self.possible, (loss, revision)
            write(log, [["put", "/after", "1", 0]])
            again = left.after_crash(Loss.EVERYTHING, self.crash_random)
            assert recovered(again)[1:] == (revision + 1, {**content, "/after": "1"})


@pytest.mark.parametrize("seed", range(8))
def test_no_crash_loses_a_transaction_that_was_acknowledged(seed: int) -> None:
    workload = Workload(seed)

    workload.run(25)

    assert workload.states > 300
    assert workload.snapshots > 0


class Migration(Workload):
    """A first start with an earlier release's files: a snapshot, and a log that a crash has torn."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.disk.on_operation = None
        self.disk.make_directory(DIRECTORY)
        self.disk.sync_directory("/data")
        content = {f"/{number}": "old" * 50 for number in range(5)}
        entries = [[key, value, 1, 2, 0] for key, value in content.items()]
        write_old_snapshot(self.disk, DIRECTORY, State(revision=7, entries=entries))
        transactions: list[list[Operation]] = []
        for _ in range(4):
            transactions.append(self.transaction())
            apply(content, transactions[-1])
        path = write_old_log(self.disk, DIRECTORY, 8, transactions)
        self.disk.write_bytes(path, self.disk.read_bytes(path) + b"\0\0\0\7torn")
        self.possible = [(11, content)]
        self.disk.on_operation = self.crash


@pytest.mark.parametrize("seed", range(4))
def test_no_crash_in_the_migration_or_after_it_loses_a_transaction(seed: int) -> None:
    workload = Migration(seed)

    workload.run(20)

    assert workload.states > 300
    names = workload.disk.list(DIRECTORY)
    assert not any(name.endswith((".log", ".snapshot")) for name in names)


def test_the_old_files_stay_until_the_first_snapshot_after_the_migration() -> None:
    disk = Migration(1).disk
    disk.on_operation = None
    before = set(disk.list(DIRECTORY))

    log, revision, content = recovered(disk)
    assert before < set(disk.list(DIRECTORY))
    log.close()
    log, *found = recovered(disk)
    assert found == [revision, content]
    assert before < set(disk.list(DIRECTORY))
    write(log, [["put", "/new", "1", 0]])
    snapshot(log)

    assert not before & set(disk.list(DIRECTORY))
    assert recovered(disk)[1:] == (revision + 1, {**content, "/new": "1"})
