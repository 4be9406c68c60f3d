"""Crashes the metadata store at every disk operation, drops unsynced data, and reopens it."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from server.metadata import log as metadata_log
from server.metadata.files import Operation, State
from server.metadata.log import MetadataLog
from tests.harness.memory_fs import Loss, MemoryFileSystem

DIRECTORY = "/data/metadata"
LOSSES = (Loss.EVERYTHING, Loss.NOTHING, Loss.TORN, Loss.TORN, Loss.TORN)

Content = dict[str, str]


def recovered(disk: MemoryFileSystem) -> tuple[MetadataLog, int, Content]:
    """Open the log. Returns its revision and the contents of the map."""
    log = MetadataLog(disk, DIRECTORY)
    state, transactions = log.recover()
    content = {entry[0]: entry[1] for entry in state.entries}
    revision = state.revision
    for transaction in transactions:
        revision = transaction.revision
        apply(content, transaction.operations)
    return log, revision, content


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
        self.states = 0
        self.disk.on_operation = self.crash

    def run(self, steps: int) -> None:
        log, _, _ = recovered(self.disk)
        for _ in range(steps):
            revision, content = self.possible[-1]
            operations = self.transaction()
            after = dict(content)
            apply(after, operations)
            self.possible = [(revision, content), (revision + 1, after)]
            assert log.append(operations) == revision + 1
            self.possible = [(revision + 1, after)]
            if log.is_due_for_snapshot:
                entries = [[key, value, 1, 1, 0] for key, value in after.items()]
                log.snapshot(State(revision=revision + 1, entries=entries))
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
            log.append([["put", "/after", "1", 0]])
            again = left.after_crash(Loss.EVERYTHING, self.crash_random)
            assert recovered(again)[1:] == (revision + 1, {**content, "/after": "1"})


@pytest.mark.parametrize("seed", range(8))
def test_no_crash_loses_a_transaction_that_was_acknowledged(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata_log, "LOG_BYTES_MIN", 6_000)
    workload = Workload(seed)

    workload.run(25)

    assert workload.states > 300
