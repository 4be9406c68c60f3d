from __future__ import annotations

import dataclasses
import errno
import stat
import uuid
from pathlib import Path
from random import Random

import pytest

from protocol.wire.numbers import Epoch, Offset
from storage.files.errors import (
    DamagedFile,
    DirectoryLocked,
    DirectoryOffline,
    DiskError,
    ForeignDirectory,
    FormatFromTheFuture,
    LogOffline,
    NoSpace,
    SyncFailed,
)
from storage.files.files import FileSystem
from storage.files.local_files import LocalFileSystem
from storage.files.paths import is_topic_put_aside
from storage.formats.meta_properties import MetaProperties
from storage.formats.topic_partition import TopicPartition
from storage.log.appender import Appended
from storage.log.directory import LogDirectory
from storage.log.log import PartitionLog
from storage.log.sync_rounds import SyncRounds
from tests.harness.log_builder import batch_of, run_of, valid
from tests.harness.log_home import SMALL, Deferred, read_all
from tests.harness.memory_fs import Loss, MemoryFileSystem

META = MetaProperties(cluster_id="c" * 22, node_id=1, directory_id="d" * 22)
ORDERS = TopicPartition("orders", 0)
TOPIC_ID = uuid.UUID(int=3)


def opened(
    fs: FileSystem, path: str = "/data", *, meta: MetaProperties = META, secret: bytes = b"k" * 16
) -> LogDirectory:
    return LogDirectory(
        fs,
        path,
        meta,
        background=Deferred(),
        now_ms=lambda: 0,
        random_bytes=lambda size: secret[:size],
    )


def create_log(directory: LogDirectory, topic_id: uuid.UUID = TOPIC_ID) -> PartitionLog:
    (log,) = directory.create_logs("orders", topic_id, SMALL, [0])
    return log


def append(log: PartitionLog, count: int = 1) -> None:
    for _ in range(count):
        assert isinstance(
            log.appender.append_as_leader(valid(batch_of([(b"k", bytes(60))])), now_ms=0), Appended
        )


def stop(directory: LogDirectory) -> None:
    for log in directory.logs():
        log.close()
    directory.close()


def test_start_counter_is_the_leader_epoch_and_grows_at_each_start() -> None:
    disk = MemoryFileSystem()
    epochs = []
    for _ in range(3):
        directory = opened(disk)
        epochs.append(directory.leader_epoch)
        stop(directory)
    crashed = opened(disk)
    disk = disk.after_crash(Loss.EVERYTHING, Random(0))
    epochs += [crashed.leader_epoch, opened(disk).leader_epoch]
    assert epochs == sorted(set(epochs))


@pytest.mark.parametrize("loss", list(Loss))
def test_a_start_leads_above_every_epoch_that_was_let_in(loss: Loss) -> None:
    disk = MemoryFileSystem()
    directory = opened(disk)
    for epoch in (5, 90, 7):
        directory.raise_epoch(Epoch(epoch))
    assert opened(disk.after_crash(loss, Random(0))).leader_epoch > 90


@pytest.mark.parametrize("loss", list(Loss))
def test_a_crash_while_the_epoch_is_raised_leaves_a_directory_that_starts(loss: Loss) -> None:
    for operation in range(1, 100):
        disk = MemoryFileSystem()
        directory = opened(disk)
        before = directory.leader_epoch
        disk.faults.fail_nth(operation, errno.EIO)
        try:
            directory.raise_epoch(Epoch(90))
        except DiskError:
            assert opened(disk.after_crash(loss, Random(operation))).leader_epoch > before
        else:
            assert operation > 3, "each step failed once"
            return
    raise AssertionError("it never succeeds")


def test_directory_is_clean_only_between_a_stop_and_the_next_start() -> None:
    disk = MemoryFileSystem()
    first = opened(disk)
    assert not first.was_clean
    stop(first)
    second = opened(disk.after_crash(Loss.EVERYTHING, Random(0)))
    assert second.was_clean
    disk = second._fs.after_crash(Loss.EVERYTHING, Random(0))  # type: ignore[attr-defined]
    assert not opened(disk).was_clean


def test_second_broker_is_refused() -> None:
    disk = MemoryFileSystem()
    directory = opened(disk)
    with pytest.raises(DirectoryLocked):
        opened(disk)
    stop(directory)
    opened(disk)


def test_directory_of_another_cluster_or_node_is_refused_and_unlocked() -> None:
    disk = MemoryFileSystem()
    stop(opened(disk))
    for other in (
        dataclasses.replace(META, cluster_id="x" * 22),
        dataclasses.replace(META, node_id=2),
    ):
        with pytest.raises(ForeignDirectory):
            opened(disk, meta=other)
    assert opened(disk).directory_id == META.directory_id


def test_directory_keeps_its_id_and_secret() -> None:
    disk = MemoryFileSystem()
    stop(opened(disk))
    again = opened(disk, meta=dataclasses.replace(META, directory_id="e" * 22), secret=b"z" * 16)
    assert again.directory_id == META.directory_id
    log = create_log(again)
    assert log.cleaning_view().hash_key == b"k" * 16


def test_secret_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    stop(opened(LocalFileSystem(), str(tmp_path / "data")))
    mode = (tmp_path / "data" / "hash.key").stat().st_mode
    assert stat.S_IMODE(mode) == 0o600


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("kompakt.format=2", FormatFromTheFuture),
        ("version=1\nnode.id=1\n", DamagedFile),
        ("kompakt.format=x", DamagedFile),
    ],
)
def test_label_that_cannot_be_ours_is_refused(text: str, kind: type[Exception]) -> None:
    disk = MemoryFileSystem()
    stop(opened(disk))
    disk.write_bytes("/data/meta.properties", text.encode())
    with pytest.raises(kind):
        opened(disk)


def test_created_log_is_there_after_a_crash_and_after_a_stop() -> None:
    disk = MemoryFileSystem()
    directory = opened(disk)
    log = create_log(directory)
    append(log, 5)
    log.sync()
    disk = disk.after_crash(Loss.EVERYTHING, Random(0))
    directory = opened(disk)
    log = directory.open_log(ORDERS, TOPIC_ID, SMALL)
    assert len(read_all(log)) == 5
    append(log)
    stop(directory)
    directory = opened(disk)
    assert len(read_all(directory.open_log(ORDERS, TOPIC_ID, SMALL))) == 6


def test_log_that_was_never_written_to_is_as_a_clean_stop_leaves_it() -> None:
    disk = MemoryFileSystem()
    directory = opened(disk)
    log = create_log(directory)
    done: list[str] = []
    disk.on_operation = lambda action, path: done.append(f"{action} {path}")
    log.close()
    assert done == []
    disk.on_operation = None
    directory.close()
    again = opened(disk)
    log = again.open_log(ORDERS, TOPIC_ID, SMALL)
    append(log, 100)
    stop(again)
    assert len(read_all(opened(disk).open_log(ORDERS, TOPIC_ID, SMALL))) == 100


def test_log_that_lost_all_its_files_is_never_created_again() -> None:
    disk = MemoryFileSystem()
    directory = opened(disk)
    with pytest.raises(LogOffline, match="no segment is left"):
        directory.open_log(ORDERS, TOPIC_ID, SMALL)


@pytest.mark.parametrize("seed", range(5))
def test_topic_creation_is_whole_or_made_again_after_a_crash_at_any_step(seed: int) -> None:
    disk = MemoryFileSystem()
    directory = opened(disk)
    states = 0

    def crash(_action: str, _path: str) -> None:
        nonlocal states
        for loss in Loss:
            left = disk.after_crash(loss, Random(seed))
            again = opened(left)
            again.delete_topic("orders", TOPIC_ID)
            log = create_log(again)
            append(log)
            log.advance_high_watermark(log.sync())
            assert [record.offset for record in read_all(log)] == [0]
            states += 1

    disk.on_operation = crash
    create_log(directory)
    assert states > 10


def test_deleted_topic_is_gone_after_a_crash_and_never_meets_its_successor() -> None:
    disk = MemoryFileSystem()
    directory = opened(disk)
    log = create_log(directory)
    append(log)
    log.sync()
    log.retire()
    directory.delete_topic("orders", TOPIC_ID)
    directory.delete_topic("orders", TOPIC_ID)
    assert directory.logs() == ()
    successor = create_log(directory, uuid.UUID(int=4))
    directory.new_logs.make_safe([successor])
    assert successor.log_end_offset == 0
    disk = disk.after_crash(Loss.EVERYTHING, Random(0))
    names = opened(disk)._fs.list("/data")
    assert not any(name.startswith("orders.AAAAAAAAAAAAAAAAAAAAAw") for name in names)


@pytest.mark.parametrize("step", range(6))
def test_topic_may_be_deleted_at_any_step_while_its_new_logs_are_made_safe(step: int) -> None:
    """The directory stays in service: what is missing was removed, and no sync has failed."""
    disk = MemoryFileSystem()
    directory = opened(disk)
    logs = directory.create_logs("orders", TOPIC_ID, SMALL, range(2))
    directory.new_logs.make_files(logs)
    steps: list[str] = []

    def delete(_action: str, path: str) -> None:
        steps.append(path)
        if len(steps) > step:
            disk.on_operation = None
            for log in logs:
                log.retire()
            directory.delete_topic("orders", TOPIC_ID)

    disk.on_operation = delete
    directory.new_logs.make_safe(logs)
    assert len(steps) == step + 1
    assert directory.offline_reason is None


@pytest.mark.parametrize("seed", range(5))
def test_topic_deletion_is_finished_after_a_crash_at_any_step(seed: int) -> None:
    disk = MemoryFileSystem()
    directory = opened(disk)
    log = create_log(directory)
    append(log, 20)
    log.sync()
    log.retire()

    def crash(_action: str, _path: str) -> None:
        for loss in Loss:
            left = disk.after_crash(loss, Random(seed))
            again = opened(left)
            again.delete_topic("orders", TOPIC_ID)
            assert not [name for name in left.list("/data") if name.startswith("orders")]

    disk.on_operation = crash
    directory.delete_topic("orders", TOPIC_ID)


def test_topics_that_are_put_aside_keep_their_files_under_names_that_no_start_reads() -> None:
    disk = MemoryFileSystem()
    directory = opened(disk)
    paths = []
    for _ in range(2):
        log = create_log(directory)
        append(log)
        log.sync()
        log.retire()
        paths += directory.put_topics_aside([("orders", TOPIC_ID)])
        assert directory.put_topics_aside([("orders", TOPIC_ID)]) == []
    assert directory.logs() == ()
    topic = "/data/orders.AAAAAAAAAAAAAAAAAAAAAw"
    assert paths == [f"{topic}.before", f"{topic}.before.1"]
    disk = disk.after_crash(Loss.EVERYTHING, Random(0))
    assert opened(disk).partitions_on_disk("orders", TOPIC_ID) == []
    for path in paths:
        assert is_topic_put_aside(path.removeprefix("/data/"))
        assert any(name.endswith(".log") for name in disk.list(f"{path}/0"))
    assert not is_topic_put_aside(topic.removeprefix("/data/"))


def test_failing_disk_takes_the_whole_directory_offline() -> None:
    disk = MemoryFileSystem()
    directory = opened(disk)
    first = create_log(directory)
    (second,) = directory.create_logs("orders", TOPIC_ID, SMALL, [1])
    append(first)
    disk.faults.fail("sync", errno.EIO)
    with pytest.raises(Exception, match="sync"):
        first.sync()
    assert directory.offline_reason is not None
    for log in (first, second):
        with pytest.raises(LogOffline):
            append(log)
    with pytest.raises(DirectoryOffline):
        directory.create_logs("orders", TOPIC_ID, SMALL, [2])
    directory.close()
    assert not disk.exists("/data/.clean-shutdown")


def test_after_a_failed_sync_the_next_start_believes_only_the_disk() -> None:
    """The page cache has the bytes that the failed sync did not write, and treats them as clean."""
    disk = MemoryFileSystem()
    directory = opened(disk)
    log = create_log(directory)
    append(log)
    log.sync()
    append(log)
    disk.faults.fail("sync", errno.EIO)
    with pytest.raises(SyncFailed):
        log.sync()
    assert "Input/output error" in disk.read_bytes("/data/.sync-failed").decode()
    directory.close()

    again = opened(disk)
    recovered = again.open_log(log.topic_partition, TOPIC_ID, SMALL)

    assert recovered.log_end_offset == 1
    assert not disk.exists("/data/.sync-failed")
    left = opened(disk.after_crash(Loss.EVERYTHING, Random(0)))
    assert left.open_log(log.topic_partition, TOPIC_ID, SMALL).log_end_offset == 1


@pytest.mark.parametrize("path", ["/data", "manifest", "/data/orders"])
@pytest.mark.parametrize(
    "is_first_use", [True, False], ids=["by_its_first_sync", "behind_the_answer"]
)
def test_sync_of_a_new_log_that_fails_takes_the_directory_offline(
    path: str, is_first_use: bool
) -> None:
    disk = MemoryFileSystem()
    directory = opened(disk)
    log = create_log(directory)
    append(log)
    disk.faults.fail("sync", errno.EIO, path=path)
    make_safe = log.sync if is_first_use else lambda: directory.new_logs.make_safe([log])
    with pytest.raises(SyncFailed):
        make_safe()
    assert directory.offline_reason is not None


def test_one_sync_of_the_disk_makes_all_new_logs_safe() -> None:
    disk = MemoryFileSystem()
    directory = opened(disk)
    logs = directory.create_logs("orders", TOPIC_ID, SMALL, range(3))
    assert directory.new_logs.make_all_safe(logs)
    for log in logs:
        append(log)
        log.sync()

    again = opened(disk.after_crash(Loss.EVERYTHING, Random(0)))
    for log in logs:
        assert again.open_log(log.topic_partition, TOPIC_ID, SMALL).log_end_offset == 1


def test_new_logs_are_not_safe_after_a_sync_of_the_disk_that_failed() -> None:
    """It may have been another program's file, so the directory stays in service."""
    disk = MemoryFileSystem()
    directory = opened(disk)
    log = create_log(directory)
    disk.faults.fail("sync all of", errno.EIO)
    assert not directory.new_logs.make_all_safe([log])
    assert directory.offline_reason is None
    append(log)
    log.sync()

    again = opened(disk.after_crash(Loss.EVERYTHING, Random(0)))
    assert again.open_log(log.topic_partition, TOPIC_ID, SMALL).log_end_offset == 1


@pytest.mark.parametrize("name", ["meta.properties", "start-counter"])
def test_a_file_that_a_directory_with_topics_must_have_is_not_created_again(name: str) -> None:
    disk = MemoryFileSystem()
    directory = opened(disk)
    create_log(directory)
    directory.close()
    disk.unlink(f"/data/{name}")

    with pytest.raises(DamagedFile, match=f"/data/{name} is damaged: it is missing, although"):
        opened(disk)


# ---------------------------------------------------------------- copies of logs


def copied(directory: LogDirectory, log: PartitionLog, offset: int = 2) -> PartitionLog:
    copy = directory.begin_copy(log, Offset(offset))
    batch = batch_of([(b"k", b"copied")], base_offset=offset, leader_epoch=0)
    copy.appender.append_as_follower(run_of(batch), now_ms=0)
    return copy


def test_copy_starts_at_the_offset_and_is_no_log_of_the_directory() -> None:
    disk = MemoryFileSystem()
    directory = opened(disk)
    log = create_log(directory)
    log.lead_above(Epoch(6))
    copy = directory.begin_copy(log, Offset(7))
    assert (copy.log_start_offset, copy.log_end_offset, copy.high_watermark) == (7, 7, 7)
    assert (copy.topic_partition, copy.topic_id) == (log.topic_partition, log.topic_id)
    assert copy.leader_epoch == 7
    assert directory.logs() == (log,)
    assert directory.partitions_on_disk("orders", TOPIC_ID) == [0]


def test_log_is_replaced_by_its_copy_over_a_start() -> None:
    disk = MemoryFileSystem()
    directory = opened(disk)
    log = create_log(directory)
    append(log)
    directory.raise_epoch(Epoch(0))
    log.lead_above(Epoch(0))
    copy = copied(directory, log)
    aside = log.replace_with(copy, puts_aside=True)
    directory.drop_copy(copy)
    assert aside == f"{log.directory}.aside.1"
    assert directory.partitions_on_disk("orders", TOPIC_ID) == [0]
    assert directory.used_partitions("orders", TOPIC_ID, 0) == [0]

    again = opened(disk.after_crash(Loss.EVERYTHING, Random(0)))
    (record,) = read_all(again.open_log(ORDERS, TOPIC_ID, SMALL))
    assert (record.offset, record.value) == (2, b"copied")


def test_on_a_full_disk_no_copy_begins_and_the_directory_stays_in_service() -> None:
    disk = MemoryFileSystem()
    directory = opened(disk)
    log = create_log(directory)
    disk.faults.fail("append to", errno.ENOSPC, path="resync")
    with pytest.raises(NoSpace):
        directory.begin_copy(log, Offset(5))
    assert directory.offline_reason is None
    assert directory.begin_copy(log, Offset(5)).log_end_offset == 5


def test_new_copy_removes_the_earlier_one() -> None:
    directory = opened(MemoryFileSystem())
    log = create_log(directory)
    first = copied(directory, log)
    second = directory.begin_copy(log, Offset(5))
    assert first.is_retired
    assert (second.log_start_offset, second.log_end_offset) == (5, 5)


def test_dropped_copy_leaves_nothing() -> None:
    disk = MemoryFileSystem()
    directory = opened(disk)
    log = create_log(directory)
    log.lead_above(Epoch(0))
    log.new_files.make_safe()
    copy = copied(directory, log)
    for _ in range(2):
        directory.drop_copy(copy)
    topic = log.directory.rpartition("/")[0]
    assert disk.after_crash(Loss.EVERYTHING, Random(0)).list(topic) == ["0"]
    with pytest.raises(LogOffline):
        log.replace_with(copy, puts_aside=False)


def test_stop_removes_a_copy_whose_drop_has_failed() -> None:
    disk = MemoryFileSystem()
    directory = opened(disk)
    log = create_log(directory)
    log.lead_above(Epoch(0))
    log.new_files.make_safe()
    copy = copied(directory, log)
    log.replace_with(copy, puts_aside=False)
    disk.faults.fail("remove", errno.EIO, path="resync")
    with pytest.raises(DiskError):
        directory.drop_copy(copy)
    assert log.offline_reason is None, "its own files are whole"
    disk.faults.heal()
    stop(directory)
    opened(disk).open_log(ORDERS, TOPIC_ID, SMALL)
    assert disk.list(log.directory.rpartition("/")[0]) == ["0"]


@pytest.mark.parametrize("is_clean", [True, False])
def test_start_removes_a_copy(is_clean: bool) -> None:
    disk = MemoryFileSystem()
    directory = opened(disk)
    log = create_log(directory)
    copied(directory, log).sync()
    log.sync()
    if is_clean:
        stop(directory)
    disk = disk.after_crash(Loss.NOTHING, Random(0))
    opened(disk).open_log(ORDERS, TOPIC_ID, SMALL)
    assert disk.list(log.directory.rpartition("/")[0]) == ["0"]


def test_failed_sync_of_a_copy_takes_the_directory_offline_with_all_logs() -> None:
    disk = MemoryFileSystem()
    directory = opened(disk)
    log = create_log(directory)
    copy = copied(directory, log)
    disk.faults.fail("sync", errno.EIO, path="resync")
    with pytest.raises(SyncFailed):
        copy.sync()
    assert directory.offline_reason is not None
    assert log.offline_reason == copy.offline_reason == directory.offline_reason
    with pytest.raises(DirectoryOffline):
        directory.begin_copy(log, Offset(0))


def test_failed_sync_of_a_log_takes_copies_offline() -> None:
    disk = MemoryFileSystem()
    directory = opened(disk)
    log = create_log(directory)
    copy = copied(directory, log)
    append(log)
    disk.faults.fail("sync", errno.EIO, path="/0/")
    with pytest.raises(SyncFailed):
        log.sync()
    assert copy.offline_reason == directory.offline_reason is not None


def test_topic_is_deleted_with_copies_and_what_was_put_aside() -> None:
    disk = MemoryFileSystem()
    directory = opened(disk)
    log = create_log(directory)
    append(log)
    log.lead_above(Epoch(0))
    log.replace_with(copied(directory, log), puts_aside=True)
    copy = copied(directory, log)
    log.retire()
    directory.delete_topic("orders", TOPIC_ID)
    assert copy.is_retired
    assert not disk.exists(log.directory.rpartition("/")[0])
    with pytest.raises(LogOffline):
        directory.begin_copy(log, Offset(0))
    directory.drop_copy(copy)
    assert directory.offline_reason is None
    assert not disk.exists(log.directory.rpartition("/")[0])


def test_round_of_syncs_covers_a_copy() -> None:
    directory = opened(MemoryFileSystem())
    log = create_log(directory)
    copy = copied(directory, log)
    rounds = SyncRounds()
    for each in (log, copy):
        rounds.mark_dirty(each)
    assert {synced.log: synced.end_offset for synced in rounds.sync_round()} == {log: 0, copy: 3}
    rounds.close()
