"""The directories of snapshots: made, completed, listed, dropped."""

from __future__ import annotations

import errno
from random import Random

import pytest

from storage.files.errors import DiskError, NoSpace
from storage.files.paths import HASH_KEY, META_PROPERTIES, SIGNING_KEY
from storage.snapshots.descriptor import (
    DirectoryInSnapshot,
    PartitionInSnapshot,
    SnapshotDescriptor,
    TopicInSnapshot,
    encode,
)
from storage.snapshots.snapshot_files import SnapshotExists, SnapshotFiles
from tests.harness.memory_fs import Loss, MemoryFileSystem

TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
DISKS = ("disk1", "disk2")
LOG = f"orders.{TOPIC_ID}/0"
SEGMENT = f"{LOG}/segment"


def world() -> tuple[MemoryFileSystem, SnapshotFiles]:
    """Returns a disk with two log directories, each with a log of one segment, and their snapshots."""
    fs = MemoryFileSystem()
    for disk in DISKS:
        fs.make_directory(f"{disk}/{LOG}")
        fs.write_bytes(f"{disk}/{META_PROPERTIES}", disk.encode())
        fs.write_bytes(f"{disk}/{HASH_KEY}", b"secret")
        fs.write_bytes(f"{disk}/{SEGMENT}", b"x" * 1000)
    fs.sync_all("/")
    return fs, snapshots_in(fs)


def snapshots_in(fs: MemoryFileSystem) -> SnapshotFiles:
    # The metadata are not in the first one, which is the first to be removed.
    return SnapshotFiles(fs, DISKS, metadata_directory="disk2")


def descriptor(snapshot_id: str, created_ms: int = 5) -> SnapshotDescriptor:
    return SnapshotDescriptor(
        id=snapshot_id,
        created_ms=created_ms,
        cluster_id="c",
        node_id=1,
        directories=[
            DirectoryInSnapshot(
                id=f"AAAAAAAAAAAAAAAAAAAAA{number}", path=f"/{disk}", has_metadata=number == 1
            )
            for number, disk in enumerate(DISKS)
        ],
        topics=[
            TopicInSnapshot(
                name="orders",
                id=TOPIC_ID,
                partitions=[
                    PartitionInSnapshot(
                        partition=number,
                        directory=f"AAAAAAAAAAAAAAAAAAAAA{number}",
                        start_offset=0,
                        end_offset=9,
                        bytes=1000,
                    )
                    for number in range(2)
                ],
            )
        ],
        cluster={},
        node={},
    )


def link(fs: MemoryFileSystem, files: SnapshotFiles, snapshot_id: str) -> None:
    for disk in DISKS:
        directory = f"{files.unfinished(disk, snapshot_id)}/{LOG}"
        fs.make_directory(directory)
        fs.link(f"{disk}/{SEGMENT}", f"{directory}/segment")
        fs.write_bytes(f"{directory}/manifest", b"m" * 10)


def make(
    fs: MemoryFileSystem, files: SnapshotFiles, snapshot_id: str, created_ms: int = 5
) -> SnapshotDescriptor:
    files.begin(snapshot_id)
    link(fs, files, snapshot_id)
    its = descriptor(snapshot_id, created_ms)
    files.finish(its)
    return its


def after_crash(fs: MemoryFileSystem) -> MemoryFileSystem:
    return fs.after_crash(Loss.EVERYTHING, Random(0))


def names(fs: MemoryFileSystem) -> list[list[str]]:
    there = [f"{disk}/snapshots" for disk in DISKS]
    return [fs.list(path) if fs.exists(path) else [] for path in there]


# ---------------------------------------------------------------- making


def test_complete_snapshot_is_listed_and_survives_a_crash() -> None:
    fs, files = world()
    its = make(fs, files, "s1")
    left = after_crash(fs)
    (found,) = snapshots_in(left).all()
    assert found.descriptor == its
    assert (found.id, found.reason, found.partitions_count, found.size_bytes) == ("s1", "", 2, 2000)
    snapshots_in(left).remove_unfinished()
    for disk in DISKS:
        assert left.read_bytes(f"{disk}/snapshots/s1/{SEGMENT}") == b"x" * 1000


def test_snapshot_has_the_labels_of_each_directory_that_exist() -> None:
    fs, files = world()
    make(fs, files, "s1")
    for disk in DISKS:
        assert fs.read_bytes(f"{disk}/snapshots/s1/{META_PROPERTIES}") == disk.encode()
        assert fs.read_bytes(f"{disk}/snapshots/s1/{HASH_KEY}") == b"secret"
        assert not fs.exists(f"{disk}/snapshots/s1/{SIGNING_KEY}")


def test_unfinished_snapshot_is_not_listed_and_the_next_start_removes_it() -> None:
    fs, files = world()
    make(fs, files, "s1")
    files.begin("s2")
    link(fs, files, "s2")
    assert [each.id for each in files.all()] == ["s1"]
    files.remove_unfinished()
    assert names(after_crash(fs)) == [["s1"], ["s1"]]


def test_id_of_another_snapshot_is_refused_and_nothing_happens_to_that() -> None:
    fs, files = world()
    make(fs, files, "s1")
    before = names(fs)
    with pytest.raises(SnapshotExists):
        files.begin("s1")
    assert names(fs) == before
    files.begin("s2")
    with pytest.raises(SnapshotExists):
        files.begin("s2")


def test_snapshot_without_descriptor_is_listed_last_as_not_complete_and_no_start_removes_it() -> (
    None
):
    fs, files = world()
    make(fs, files, "s1", created_ms=9)
    make(fs, files, "s0", created_ms=10)
    fs.unlink(files.descriptor_path("s1"))
    files.remove_unfinished()
    assert [(each.id, each.reason) for each in files.all()] == [
        ("s0", ""),
        ("s1", "it was not completed"),
    ]


def test_snapshots_are_listed_from_the_oldest_to_the_newest() -> None:
    fs, files = world()
    for snapshot_id, created_ms in (("b", 1), ("c", 3), ("a", 2)):
        make(fs, files, snapshot_id, created_ms)
    assert [each.id for each in files.all()] == ["b", "a", "c"]


def test_damaged_descriptor_is_the_reason_why_a_snapshot_is_not_complete() -> None:
    fs, files = world()
    make(fs, files, "s1")
    fs.overwrite(files.descriptor_path("s1"), 0, b"?")
    (found,) = files.all()
    assert found.descriptor is None
    assert "is damaged" in found.reason
    fs.write_bytes(files.descriptor_path("s1"), encode(descriptor("other")))
    assert "is that of snapshot other" in files.all()[0].reason


def test_broker_without_snapshots_lists_none_and_pins_nothing() -> None:
    _, files = world()
    assert files.all() == []
    files.remove_unfinished()
    assert files.pinned().total == 0


# ---------------------------------------------------------------- failures


@pytest.mark.parametrize("action", ["sync all of", "rename", "write", "sync"])
def test_abandoned_snapshot_leaves_nothing(action: str) -> None:
    fs, files = world()
    files.begin("s1")
    link(fs, files, "s1")
    fs.faults.fail(action, errno.ENOSPC)
    with pytest.raises(DiskError):
        files.finish(descriptor("s1"))
    files.abandon("s1")
    assert names(fs) == names(after_crash(fs)) == [[], []]
    assert fs.exists(f"disk1/{SEGMENT}")


def test_abandoned_snapshot_is_never_complete_with_only_some_of_its_files() -> None:
    fs, files = world()
    files.begin("s1")
    link(fs, files, "s1")
    # The descriptor has its name, and then the sync of its directory fails.
    fs.faults.fail("sync", errno.EIO, path="disk2/snapshots/s1")
    with pytest.raises(DiskError):
        files.finish(descriptor("s1"))

    def check(_action: str, _path: str) -> None:
        for loss in (Loss.NOTHING, Loss.EVERYTHING):
            left = fs.after_crash(loss, Random(0))
            for each in snapshots_in(left).all():
                if each.descriptor is not None:
                    assert all(left.exists(f"{disk}/snapshots/s1/{SEGMENT}") for disk in DISKS)

    fs.on_operation = check
    files.abandon("s1")
    fs.on_operation = None
    assert names(fs) == [[], []]


def test_disk_that_fails_while_a_snapshot_is_abandoned_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fs, files = world()
    files.begin("s1")
    fs.faults.fail("remove", errno.EIO)
    files.abandon("s1")
    assert "cannot remove what is left of s1" in caplog.text
    assert names(fs) == [["s1.part"], []]
    files.remove_unfinished()
    assert names(fs) == [[], []]


def test_full_disk_at_the_begin_is_raised() -> None:
    fs, files = world()
    fs.faults.fail("create", errno.ENOSPC)
    with pytest.raises(NoSpace):
        files.begin("s1")


# ---------------------------------------------------------------- dropping


def test_dropped_snapshot_is_gone_and_the_others_and_the_logs_stay() -> None:
    fs, files = world()
    make(fs, files, "s1")
    make(fs, files, "s2")
    assert files.drop("s1")
    left = after_crash(fs)
    assert [each.id for each in snapshots_in(left).all()] == ["s2"]
    assert names(left) == [["s2"], ["s2"]]
    assert left.exists(f"disk1/{SEGMENT}")


@pytest.mark.parametrize("snapshot_id", ["s2", "s1.part", ""])
def test_unknown_snapshot_is_not_dropped(snapshot_id: str) -> None:
    fs, files = world()
    make(fs, files, "s1")
    assert not files.drop(snapshot_id)
    assert names(fs) == [["s1"], ["s1"]]


def test_drop_that_failed_in_the_middle_can_be_repeated() -> None:
    fs, files = world()
    make(fs, files, "s1")
    fs.faults.fail("rename", errno.EIO, path="disk2")
    with pytest.raises(DiskError):
        files.drop("s1")
    assert [each.descriptor for each in files.all()] == [None]
    assert files.drop("s1")
    assert names(fs) == [[], []]


# ---------------------------------------------------------------- what they hold of the disk


def test_pinned_bytes_are_those_of_files_that_only_snapshots_have() -> None:
    fs, files = world()
    own = 2 * (10 + len("disk1") + len("secret"))
    for snapshot_id in ("s1", "s2"):
        make(fs, files, snapshot_id)
    described = sum(fs.size(files.descriptor_path(each)) for each in ("s1", "s2"))
    assert files.pinned().total == 2 * own + described
    fs.unlink(f"disk1/{SEGMENT}")
    pinned = files.pinned()
    assert pinned.total == 2 * own + described + 1000
    assert pinned.alone["s1"] == own + described // 2
    files.drop("s2")
    assert files.pinned().alone == {"s1": own + described // 2 + 1000}


def test_unfinished_snapshot_pins_too() -> None:
    fs, files = world()
    files.begin("s1")
    link(fs, files, "s1")
    fs.unlink(f"disk2/{SEGMENT}")
    assert files.pinned().alone["s1"] >= 1000
