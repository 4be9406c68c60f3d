"""A merged snapshot of the metadata has the bytes of one that is made in process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replog.checkpoints import PART
from replog.entry import SnapshotId
from replog.offline_merge.merge import merge
from replog.offline_merge.merger import named_merger
from replog.offline_merge.plan import MergePlan
from replog.trigger import CompactionSettings
from server.metadata.log import MERGER, MetadataLog
from server.metadata.machine import Operation
from tests.harness.examples import examples
from tests.harness.memory_fs import MemoryFileSystem

DIRECTORY = "/data/metadata"
KEYS = ["/a", "/b", "/c/\u00e4", "/c/\U0001f600", ""]
LEASES = st.integers(-4, -1)
"""The last lease that was granted, the one before it, and so on."""

OPERATIONS: st.SearchStrategy[Any] = st.one_of(
    st.tuples(
        st.just("put"), st.sampled_from(KEYS), st.text(max_size=5), st.one_of(st.just(0), LEASES)
    ),
    st.tuples(st.just("delete"), st.sampled_from(KEYS)),
    st.tuples(st.just("grant"), st.integers(1, 9)),
    st.tuples(st.just("revoke"), LEASES),
)
TRANSACTIONS = st.lists(st.lists(OPERATIONS, min_size=1, max_size=4), max_size=12)


def new_disk() -> MemoryFileSystem:
    disk = MemoryFileSystem()
    disk.make_directory("/data")
    disk.sync_directory("/")
    return disk


def opened(disk: MemoryFileSystem) -> MetadataLog:
    log = MetadataLog(disk, DIRECTORY, CompactionSettings(segment_bytes=200, catchup_entries=0))
    log.recover()
    return log


def write(log: MetadataLog, *operations: Operation) -> None:
    entry = log.append(operations)
    log.machine.run(operations)
    log.applied(entry)


def snapshot(log: MetadataLog) -> None:
    log.begin_snapshot()
    log.write_snapshot()
    assert log.finish_snapshot()


def merged_and_made(disk: MemoryFileSystem, log: MetadataLog) -> tuple[bytes, bytes]:
    """Merge a snapshot of the state as it is now, then make it in process. Returns the bytes of both."""
    replica = log.replica
    replica.log.roll()
    plan = MergePlan(
        directory=DIRECTORY,
        base=replica.snapshot,
        snapshot=SnapshotId(replica.log.end, replica.log.last_term),
        digest=log.machine.digest(),
        merger=MERGER,
    )
    for _ in merge(disk, plan, named_merger(plan.merger)):
        pass
    part = replica.checkpoints.path(plan.snapshot) + PART
    merged = disk.read_bytes(part)
    disk.unlink(part)
    snapshot(log)
    return merged, disk.read_bytes(replica.checkpoints.path(plan.snapshot))


class Written:
    """Makes operations as the store does: no lease is granted twice."""

    def __init__(self) -> None:
        self.granted: list[int] = []

    def operation(self, number: int, revision: int, step: tuple[Any, ...]) -> Operation | None:
        verb, *arguments = step
        if verb == "grant":
            self.granted.append(revision * 100 + number)
            return [verb, self.granted[-1], *arguments]
        lease = arguments[-1]
        if verb == "delete" or lease == 0:
            return [verb, *arguments]
        if -lease > len(self.granted):
            return None
        return [verb, *arguments[:-1], self.granted[lease]]


@settings(max_examples=examples(300), deadline=None)
@given(runs=st.lists(TRANSACTIONS, min_size=1, max_size=4), is_reopened=st.booleans())
def test_a_merged_snapshot_has_the_bytes_of_one_made_in_process(
    runs: Sequence[Sequence[Sequence[tuple[Any, ...]]]], is_reopened: bool
) -> None:
    disk = new_disk()
    log = opened(disk)
    written = Written()
    for transactions in runs:
        for steps in transactions:
            revision = log.machine.revision + 1
            found = [written.operation(number, revision, step) for number, step in enumerate(steps)]
            if any(found):
                write(log, *(each for each in found if each is not None))
        if is_reopened:
            log.close()
            log = opened(disk)
        if log.replica.log.end > log.replica.snapshot.end:
            merged, made = merged_and_made(disk, log)
            assert merged == made


CASES: dict[str, list[Operation]] = {
    "a put keeps the create revision of the entry in the snapshot": [["put", "/kept", "2", 0]],
    "a put after a deletion does not": [["delete", "/kept"], ["put", "/kept", "2", 0]],
    "a put after the end of the entry's lease does not": [
        ["revoke", 3],
        ["put", "/leased", "2", 0],
    ],
    "a put before the end of the old entry's lease does": [
        ["put", "/leased", "2", 0],
        ["revoke", 3],
    ],
    "a put that keeps the lease ends with it": [["put", "/leased", "2", 3], ["revoke", 3]],
    "a put that moves to another lease ends with that": [
        ["put", "/leased", "2", 4],
        ["revoke", 3],
        ["revoke", 4],
    ],
    "a lease ends once": [["revoke", 3], ["put", "/leased", "2", 0], ["revoke", 3]],
    "a revoked lease takes the keys that only the snapshot has": [["revoke", 3]],
    "a lease that was granted and revoked since leaves nothing": [
        ["grant", 9, 100],
        ["put", "/new", "1", 9],
        ["revoke", 9],
    ],
}


@pytest.mark.parametrize("case", CASES)
def test_the_create_revision_and_the_leases_are_those_of_the_machine(case: str) -> None:
    disk = new_disk()
    log = opened(disk)
    write(log, ["grant", 3, 100], ["grant", 4, 100])
    write(log, ["put", "/kept", "1", 0], ["put", "/leased", "1", 3], ["put", "/other", "1", 3])
    snapshot(log)
    for operation in CASES[case]:
        write(log, operation)

    merged, made = merged_and_made(disk, log)

    assert merged == made


def test_an_unknown_command_ends_the_merge() -> None:
    merger = named_merger(MERGER)(lambda _: None)

    with pytest.raises(AssertionError, match="unknown operation"):
        merger.add(1, b'{"operations":[["later"]]}')
