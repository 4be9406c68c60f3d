"""Verification finds damage in the metadata store's files, and accepts files that a crash left."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cli.dump.verify_metadata import verify_metadata
from replog.trigger import CompactionSettings
from server.metadata.log import MetadataLog
from server.metadata.machine import Operation
from server.metadata.old_files import State
from storage.verify.findings import Severity
from tests.harness.damage import flip
from tests.harness.memory_fs import MemoryFileSystem
from tests.harness.old_metadata import write_old_log, write_old_snapshot

DIRECTORY = "/data/metadata"
LOG = f"{DIRECTORY}/{3:020d}.replog"
SNAPSHOT = f"{DIRECTORY}/{3:020d}-{1:010d}.checkpoint"


def store() -> MemoryFileSystem:
    """Returns a disk with a snapshot of revision 2, and two later transactions."""
    disk = MemoryFileSystem()
    disk.make_directory("/data")
    log = MetadataLog(disk, DIRECTORY, CompactionSettings(catchup_entries=0))
    log.recover()
    for revision in (1, 2):
        write(log, revision)
    log.begin_snapshot()
    log.write_snapshot()
    log.finish_snapshot()
    for revision in (3, 4):
        write(log, revision)
    log.close()
    return disk


def write(log: MetadataLog, revision: int) -> None:
    operations: list[Operation] = [["put", f"/key/{revision}", "value", 0]]
    entry = log.append(operations)
    log.machine.run(operations)
    log.applied(entry)


def old_store() -> MemoryFileSystem:
    """Returns a disk with the files of an earlier release."""
    disk = MemoryFileSystem()
    disk.make_directory(DIRECTORY)
    write_old_snapshot(disk, DIRECTORY, State(revision=2, entries=[["/key/1", "value", 1, 1, 0]]))
    write_old_log(disk, DIRECTORY, 3, [[["put", "/key/3", "value", 0]]])
    return disk


@pytest.mark.parametrize("made", [store, old_store])
def test_a_store_in_use_is_sound(made: Callable[[], MemoryFileSystem]) -> None:
    assert verify_metadata(made(), DIRECTORY) == ()


def test_damage_in_an_earlier_releases_files_is_found() -> None:
    disk = old_store()
    flip(disk, f"{DIRECTORY}/{2:020d}.snapshot", -1)

    (finding,) = verify_metadata(disk, DIRECTORY)

    assert finding.severity is Severity.ERROR


@pytest.mark.parametrize(
    ("damage", "severity"),
    [
        pytest.param(lambda disk: flip(disk, LOG, 40), Severity.ERROR, id="a_transaction"),
        pytest.param(lambda disk: flip(disk, LOG, -2), Severity.ERROR, id="the_last_transaction"),
        pytest.param(lambda disk: flip(disk, SNAPSHOT, -1), Severity.ERROR, id="the_snapshot"),
        pytest.param(lambda disk: disk.unlink(SNAPSHOT), Severity.ERROR, id="no_snapshot"),
        pytest.param(
            lambda disk: disk.open(LOG).truncate(disk.size(LOG) - 3), Severity.NOTE, id="torn"
        ),
        pytest.param(
            lambda disk: disk.write_bytes(f"{DIRECTORY}/cut.2.0", b"x"), Severity.NOTE, id="cut"
        ),
        pytest.param(
            lambda disk: disk.write_bytes(f"{DIRECTORY}/notes", b"x"), Severity.NOTE, id="foreign"
        ),
    ],
)
def test_damage_is_found_and_what_a_crash_leaves_is_explained(
    damage: Callable[[MemoryFileSystem], None], severity: Severity
) -> None:
    disk = store()
    damage(disk)
    before = {name: disk.read_bytes(f"{DIRECTORY}/{name}") for name in disk.list(DIRECTORY)}

    (finding,) = verify_metadata(disk, DIRECTORY)

    assert finding.severity is severity
    after = {name: disk.read_bytes(f"{DIRECTORY}/{name}") for name in disk.list(DIRECTORY)}
    assert after == before
