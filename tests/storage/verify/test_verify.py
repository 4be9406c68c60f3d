"""Finding the logs to verify at a path, and verifying the files at the top of a data directory."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from storage.files.paths import (
    AUDIT_LOG,
    CLEAN_SHUTDOWN,
    HASH_KEY,
    LEASES,
    META_PROPERTIES,
    SHOWN_BY_CLEANERS,
    SIGNING_KEY,
    SNAPSHOTS,
    START_COUNTER,
    SYNC_FAILED,
    topic_directory,
)
from storage.verify.findings import Check, Severity
from storage.verify.log import verify_log
from storage.verify.verify import check_start_counter, find_logs
from tests.harness.memory_fs import MemoryFileSystem
from tests.harness.verification import findings_in
from tests.storage.log.test_directory import TOPIC_ID, append, create_log, opened, stop

TOPIC = f"/data/{topic_directory('orders', TOPIC_ID)}"


def directory_on_disk(*, is_stopped: bool = True) -> MemoryFileSystem:
    """A data directory with one log of three batches."""
    disk = MemoryFileSystem()
    directory = opened(disk)
    append(create_log(directory), 3)
    if is_stopped:
        stop(directory)
    return disk


@pytest.mark.parametrize("path", ["/data", TOPIC, f"{TOPIC}/0"])
def test_a_data_directory_a_topic_and_a_partition_can_be_verified(path: str) -> None:
    disk = directory_on_disk()

    found = find_logs(disk, path)

    assert found is not None
    assert found.was_clean
    assert found.findings == ()
    (identity,) = found.logs
    assert (identity.topic_partition.topic, identity.topic_partition.partition) == ("orders", 0)
    assert identity.topic_id == TOPIC_ID
    assert identity.hash_key == disk.read_bytes(f"/data/{HASH_KEY}")
    report = verify_log(disk, identity, was_clean=found.was_clean)
    assert (report.findings, report.records) == ((), 3)


def test_a_partition_that_was_copied_elsewhere_is_what_its_manifest_says() -> None:
    disk = directory_on_disk()
    disk.make_directory("/copy")
    for name in disk.list(f"{TOPIC}/0"):
        disk.write_bytes(f"/copy/{name}", disk.read_bytes(f"{TOPIC}/0/{name}"))

    found = find_logs(disk, "/copy")

    assert found is not None
    assert found.logs[0].topic_id == TOPIC_ID
    assert verify_log(disk, found.logs[0]).findings == ()


def test_another_directory_is_none_of_ours() -> None:
    disk = MemoryFileSystem()
    disk.make_directory("/etc/conf")
    disk.write_bytes("/etc/conf/a", b"b")

    assert find_logs(disk, "/etc") is None
    assert find_logs(disk, "/etc/conf") is None


@pytest.mark.parametrize(
    ("damage", "severity", "check"),
    [
        pytest.param(
            lambda disk: disk.write_bytes(f"/data/{META_PROPERTIES}", b"version=1\n"),
            Severity.ERROR,
            Check.DIRECTORY,
            id="meta.properties",
        ),
        pytest.param(
            lambda disk: disk.unlink(f"/data/{START_COUNTER}"),
            Severity.ERROR,
            Check.DIRECTORY,
            id="no_start_counter",
        ),
        pytest.param(
            lambda disk: disk.write_bytes(f"/data/{START_COUNTER}", b"three\n"),
            Severity.ERROR,
            Check.DIRECTORY,
            id="start_counter_that_is_no_number",
        ),
        pytest.param(
            lambda disk: disk.write_bytes(f"/data/{START_COUNTER}", b"-1\n"),
            Severity.ERROR,
            Check.EPOCH,
            id="start_counter_behind_the_batches",
        ),
        pytest.param(
            lambda disk: disk.write_bytes(f"/data/{HASH_KEY}", b"short"),
            Severity.ERROR,
            Check.DIRECTORY,
            id="hash_key_cut_short",
        ),
        pytest.param(
            lambda disk: disk.unlink(f"/data/{HASH_KEY}"),
            Severity.WARNING,
            Check.DIRECTORY,
            id="no_hash_key",
        ),
        pytest.param(
            lambda disk: disk.write_bytes(f"/data/{SYNC_FAILED}", b"sync /data: EIO\n"),
            Severity.WARNING,
            Check.DIRECTORY,
            id="sync_failed",
        ),
        pytest.param(
            lambda disk: disk.rename(TOPIC, f"{TOPIC}.deleted"),
            Severity.NOTE,
            Check.DIRECTORY,
            id="topic_being_deleted",
        ),
        pytest.param(
            lambda disk: disk.rename(TOPIC, f"{TOPIC}.before.2"),
            Severity.NOTE,
            Check.DIRECTORY,
            id="topic_that_was_put_aside",
        ),
        pytest.param(
            lambda disk: disk.make_directory("/data/snapshots/20261130T041500-7f3a"),
            Severity.NOTE,
            Check.DIRECTORY,
            id="snapshot",
        ),
        pytest.param(
            lambda disk: disk.write_bytes("/data/lost+found", b""),
            Severity.NOTE,
            Check.DIRECTORY,
            id="foreign_file",
        ),
    ],
)
def test_what_is_wrong_at_the_top_is_said(
    damage: Callable[[MemoryFileSystem], None], severity: Severity, check: Check
) -> None:
    disk = directory_on_disk()
    assert findings_in(disk, "/data") == []

    damage(disk)

    assert [(each.severity, each.check) for each in findings_in(disk, "/data")] == [
        (severity, check)
    ]


@pytest.mark.parametrize("name", [AUDIT_LOG, LEASES, SHOWN_BY_CLEANERS, SIGNING_KEY, SNAPSHOTS])
def test_what_a_broker_writes_at_the_top_is_no_surprise(name: str) -> None:
    disk = directory_on_disk()
    if name in (LEASES, SNAPSHOTS):
        disk.make_directory(f"/data/{name}")
    else:
        disk.write_bytes(f"/data/{name}", b"something")

    assert findings_in(disk, "/data") == []


def test_a_marker_of_a_clean_stop_is_held_against_the_logs() -> None:
    disk = directory_on_disk(is_stopped=False)
    assert findings_in(disk, "/data") == []

    disk.write_bytes(f"/data/{CLEAN_SHUTDOWN}", b"clean\n")

    (finding,) = findings_in(disk, "/data")
    assert (finding.severity, finding.check) == (Severity.ERROR, Check.DIRECTORY)


def test_a_topic_that_goes_away_meanwhile_is_not_missed() -> None:
    disk = directory_on_disk()
    found = find_logs(disk, "/data")
    assert found is not None
    disk.remove_tree(TOPIC)

    assert found.log_bytes(disk) == 0
    assert check_start_counter(found, ()) == ()
