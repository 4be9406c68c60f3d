"""Both file systems keep the same guarantees; the one in memory also loses unsynced data."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

from storage.files.errors import (
    DirectoryLocked,
    DiskError,
    LinksRefused,
    MissingFile,
    NoSpace,
    NotCached,
    SyncFailed,
)
from storage.files.files import FileSystem, remove_tree_durably
from storage.files.local_files import LocalFileSystem
from tests.harness.cold_fs import evict
from tests.harness.memory_fs import Loss, MemoryFileSystem


@pytest.fixture(params=["local", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[FileSystem, str]:
    if request.param == "local":
        return LocalFileSystem(), str(tmp_path)
    disk = MemoryFileSystem()
    disk.make_directory("/data")
    return disk, "/data"


def test_parts_are_appended_in_order_and_read_back_at_any_position(
    place: tuple[FileSystem, str],
) -> None:
    fs, home = place
    file = fs.open(f"{home}/f", create=True)

    assert file.append([b"ab", bytearray(b"cd"), memoryview(b"ef")]) == 0
    assert file.append([b"gh"]) == 6

    assert file.size == 8
    assert file.read_at(2, 4) == b"cdef"
    assert file.read_at(6, 100) == b"gh"
    assert file.read_at(8, 1) == b""
    file.close()
    file.close()


def test_more_parts_than_one_system_call_takes_are_all_written(
    place: tuple[FileSystem, str],
) -> None:
    fs, home = place
    file = fs.open(f"{home}/f", create=True)
    file.append([bytes([number % 256]) for number in range(5000)])
    assert file.read_at(0, 5000) == bytes(number % 256 for number in range(5000))
    file.close()


def test_what_is_in_memory_is_read_without_waiting(place: tuple[FileSystem, str]) -> None:
    fs, home = place
    file = fs.open(f"{home}/f", create=True)
    file.append([b"abcdef"])
    assert file.read_cached(2, 2) == b"cd"
    assert file.read_cached(4, 100) == b"ef"
    assert file.read_cached(6, 1) == b""
    file.close()


def test_what_the_page_cache_does_not_have_is_not_waited_for(tmp_path: Path) -> None:
    file = LocalFileSystem().open(str(tmp_path / "f.log"), create=True)
    file.append([bytes(1 << 20)])
    if not evict(tmp_path):
        pytest.skip("this file system does not empty its page cache, or does not tell")
    for size in (1, 100_000):
        with pytest.raises(NotCached):
            file.read_cached(500_000, size)
    assert file.read_at(0, 1 << 20) == bytes(1 << 20)
    assert file.read_cached(500_000, 100_000) == bytes(100_000)
    file.close()


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="there is no tmpfs")
def test_reading_ahead_is_a_hint_that_never_fails(place: tuple[FileSystem, str]) -> None:
    fs, home = place
    file = fs.open(f"{home}/f", create=True)
    file.append([b"abcdef"])
    file.read_ahead(0, 6)
    file.read_ahead(1 << 40, 1 << 20)
    assert file.read_at(0, 6) == b"abcdef"
    file.close()
    file.read_ahead(0, 6)


def test_file_system_that_cannot_tell_is_read_all_the_same() -> None:
    """tmpfs refuses RWF_NOWAIT, and has everything in memory."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        file = LocalFileSystem().open(f"{folder}/f", create=True)
        file.append([b"abc"])
        assert file.read_cached(0, 3) == b"abc"
        assert file.read_cached(1, 9) == b"bc"
        file.close()


def test_reserved_space_changes_neither_size_nor_bytes(place: tuple[FileSystem, str]) -> None:
    fs, home = place
    file = fs.open(f"{home}/f", create=True)
    file.reserve(4 << 20)
    assert file.size == fs.size(f"{home}/f") == 0
    file.append([b"abc"])
    file.free_reserved()
    assert fs.read_bytes(f"{home}/f") == b"abc"
    file.append([b"def"])
    assert fs.read_bytes(f"{home}/f") == b"abcdef"
    file.close()


def test_space_is_reserved_and_given_back(tmp_path: Path) -> None:
    fs, path = LocalFileSystem(), tmp_path / "f"
    file = fs.open(str(path), create=True)
    file.append([bytes(100_000)])

    file.reserve(8 << 20)
    assert path.stat().st_blocks * 512 >= 8 << 20

    file.free_reserved()
    assert path.stat().st_blocks * 512 < 1 << 20
    assert path.stat().st_size == 100_000
    file.close()


def test_a_reservation_that_is_larger_than_the_disk_is_no_space(tmp_path: Path) -> None:
    file = LocalFileSystem().open(str(tmp_path / "f"), create=True)
    with pytest.raises((NoSpace, DiskError)) as caught:
        file.reserve(1 << 50)
    assert caught.value.errno in (errno.ENOSPC, errno.EFBIG)
    file.close()


def test_what_is_written_back_is_as_it_was_and_is_synced_later(
    place: tuple[FileSystem, str],
) -> None:
    fs, home = place
    file = fs.open(f"{home}/f", create=True)
    data = os.urandom(3 << 20)
    file.append([data])

    file.begin_write_back(0, 2 << 20)
    file.end_write_back(0, 1 << 20)
    file.append([b"more"])
    file.sync()

    assert file.read_at(0, file.size) == data + b"more"
    file.close()


def test_what_is_written_back_is_not_safe() -> None:
    disk = MemoryFileSystem()
    disk.make_directory("/data")
    file = disk.open("/data/f", create=True)
    for directory in ("/", "/data"):
        disk.sync_directory(directory)
    file.append([b"bytes"])
    file.begin_write_back(0, 5)
    file.end_write_back(0, 5)

    assert disk.after_crash(Loss.EVERYTHING, Random(0)).read_bytes("/data/f") == b""


def test_a_write_back_that_fails_names_the_file(tmp_path: Path) -> None:
    file = LocalFileSystem().open(str(tmp_path / "f"), create=True)
    file.append([b"bytes"])
    file.close()

    for write_back in (file.begin_write_back, file.end_write_back):
        with pytest.raises(DiskError, match=f"write back {tmp_path}/f.*errno 9"):
            write_back(0, 5)


def test_truncated_file_goes_on_at_its_new_end(place: tuple[FileSystem, str]) -> None:
    fs, home = place
    file = fs.open(f"{home}/f", create=True)
    file.append([b"abcdef"])
    file.truncate(2)
    file.append([b"X"])
    file.sync()
    file.close()
    assert fs.read_bytes(f"{home}/f") == b"abX"
    assert fs.size(f"{home}/f") == 3


def test_creating_what_exists_and_opening_what_does_not_are_refused(
    place: tuple[FileSystem, str],
) -> None:
    fs, home = place
    fs.open(f"{home}/f", create=True).close()
    with pytest.raises(DiskError) as caught:
        fs.open(f"{home}/f", create=True)
    assert caught.value.errno == errno.EEXIST
    for action in (fs.open, fs.read_bytes, fs.size, fs.unlink, fs.list):
        with pytest.raises(MissingFile):
            action(f"{home}/missing")


def test_replaced_file_has_the_new_bytes_and_leaves_no_staging_file(
    place: tuple[FileSystem, str],
) -> None:
    fs, home = place
    fs.replace_durably(f"{home}/m", b"one")
    fs.replace_durably(f"{home}/m", b"two")
    assert fs.read_bytes(f"{home}/m") == b"two"
    assert fs.list(home) == ["m"]


def test_directory_tree_is_made_listed_renamed_and_removed(place: tuple[FileSystem, str]) -> None:
    fs, home = place
    fs.make_directory(f"{home}/t/0")
    fs.make_directory(f"{home}/t/0")
    fs.write_bytes(f"{home}/t/0/f", b"x")
    fs.rename(f"{home}/t", f"{home}/u")
    assert fs.list(home) == ["u"]
    assert fs.read_bytes(f"{home}/u/0/f") == b"x"
    fs.remove_tree(f"{home}/u")
    fs.remove_tree(f"{home}/u")
    assert not fs.exists(f"{home}/u")


def test_linked_file_has_two_names_and_lives_while_one_is_left(
    place: tuple[FileSystem, str],
) -> None:
    fs, home = place
    file = fs.open(f"{home}/f", create=True)
    file.append([b"abc"])
    fs.link(f"{home}/f", f"{home}/g")
    file.append([b"d"])
    file.close()
    fs.unlink(f"{home}/f")
    assert fs.list(home) == ["g"]
    assert fs.read_bytes(f"{home}/g") == b"abcd"


def test_link_over_an_existing_name_or_of_a_missing_file_is_refused(
    place: tuple[FileSystem, str],
) -> None:
    fs, home = place
    for name in "fg":
        fs.write_bytes(f"{home}/{name}", name.encode())
    with pytest.raises(DiskError) as caught:
        fs.link(f"{home}/f", f"{home}/g")
    assert caught.value.errno == errno.EEXIST
    with pytest.raises(MissingFile):
        fs.link(f"{home}/missing", f"{home}/h")
    assert fs.read_bytes(f"{home}/g") == b"g"


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK])
def test_file_system_without_hard_links_refuses_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(source: str, target: str) -> None:
        raise OSError(number, "no links here")

    monkeypatch.setattr("os.link", refuse)
    with pytest.raises(LinksRefused, match=f"link {tmp_path}/f: no links here"):
        LocalFileSystem().link(f"{tmp_path}/f", f"{tmp_path}/g")


def test_link_that_is_not_synced_is_lost_and_the_file_is_not() -> None:
    disk = MemoryFileSystem()
    disk.make_directory("/a")
    disk.sync_directory("/")
    disk.write_bytes("/a/f", b"x")
    disk.sync_directory("/a")
    disk.link("/a/f", "/a/g")
    assert disk.after_crash(Loss.EVERYTHING, Random(0)).list("/a") == ["f"]
    disk.sync_directory("/a")
    left = disk.after_crash(Loss.EVERYTHING, Random(0))
    assert (left.read_bytes("/a/f"), left.read_bytes("/a/g")) == (b"x", b"x")


def test_tree_that_is_removed_durably_does_not_come_back() -> None:
    disk = MemoryFileSystem()
    disk.make_directory("/a/b")
    for path in ("/", "/a"):
        disk.sync_directory(path)
    remove_tree_durably(disk, "/a/b")
    assert disk.after_crash(Loss.EVERYTHING, Random(0)).list("/a") == []
    disk.remove_tree("/a")
    remove_tree_durably(disk, "/a/b")


def test_sync_of_a_missing_directory_is_no_failed_sync(place: tuple[FileSystem, str]) -> None:
    fs, home = place
    with pytest.raises(MissingFile):
        fs.sync_directory(f"{home}/gone")


def test_open_file_outlives_its_name(place: tuple[FileSystem, str]) -> None:
    fs, home = place
    file = fs.open(f"{home}/f", create=True)
    file.append([b"abc"])
    fs.unlink(f"{home}/f")
    assert file.read_at(0, 3) == b"abc"
    file.close()


def test_lock_is_held_by_one_at_a_time(place: tuple[FileSystem, str]) -> None:
    fs, home = place
    lock = fs.lock(f"{home}/.lock")
    with pytest.raises(DirectoryLocked, match=home):
        fs.lock(f"{home}/.lock")
    lock.release()
    lock.release()
    fs.lock(f"{home}/.lock").release()


def test_free_bytes_returns_the_free_space_of_a_disk(place: tuple[FileSystem, str]) -> None:
    fs, root = place
    assert 0 < fs.free_bytes(root) < 1 << 60


def test_the_free_space_where_nothing_is_is_an_error_of_ours(tmp_path: Path) -> None:
    with pytest.raises(MissingFile):
        LocalFileSystem().free_bytes(str(tmp_path / "gone"))


def test_failed_append_leaves_the_file_as_long_as_before(tmp_path: Path) -> None:
    """RLIMIT_FSIZE makes the kernel write a part and then refuse, like a full disk."""
    child = os.fork()
    if child == 0:
        os._exit(_append_beyond_a_limit(str(tmp_path / "f")))
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert (tmp_path / "f").read_bytes() == b"abc"


def _append_beyond_a_limit(path: str) -> int:
    import resource
    import signal

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
    file = LocalFileSystem().open(path, create=True)
    file.append([b"abc"])
    try:
        file.append([b"x" * 9_000, b"y" * 9_000])
    except DiskError as error:
        return 0 if error.errno == errno.EFBIG and file.size == 3 else 1
    return 2


@pytest.mark.parametrize(
    ("action", "number", "kind"),
    [
        pytest.param("append to", errno.ENOSPC, NoSpace, id="full_disk"),
        pytest.param("append to", errno.EIO, DiskError, id="write_error"),
        pytest.param("sync", errno.EIO, SyncFailed, id="failed_sync"),
        pytest.param("sync", errno.ENOSPC, SyncFailed, id="full_disk_found_by_sync"),
    ],
)
def test_system_errors_become_ours_with_path_and_number(
    action: str, number: int, kind: type[DiskError]
) -> None:
    disk = MemoryFileSystem()
    file = disk.open("/f", create=True)
    disk.faults.fail(action, number)
    with pytest.raises(kind) as caught:
        file.append([b"x"]) if action == "append to" else file.sync()
    assert type(caught.value) is kind
    assert (caught.value.path, caught.value.errno) == ("/f", number)


def test_crash_keeps_what_was_synced_and_loses_names_that_were_not() -> None:
    disk = MemoryFileSystem()
    disk.make_directory("/d")
    disk.sync_directory("/")
    kept = disk.open("/d/kept", create=True)
    kept.append([b"safe"])
    kept.sync()
    disk.sync_directory("/d")
    kept.append([b"gone"])
    lost = disk.open("/d/lost", create=True)
    lost.append([b"synced bytes under a name that was not"])
    lost.sync()

    left = disk.after_crash(Loss.EVERYTHING, Random(0))

    assert left.list("/d") == ["kept"]
    assert left.read_bytes("/d/kept") == b"safe"
    assert disk.read_bytes("/d/kept") == b"safegone"


def test_one_sync_of_the_disk_keeps_all_bytes_and_names() -> None:
    disk = MemoryFileSystem()
    disk.make_directory("/d/e")
    disk.open("/d/e/f", create=True).append([b"bytes"])

    disk.sync_all("/d")

    assert disk.after_crash(Loss.EVERYTHING, Random(0)).read_bytes("/d/e/f") == b"bytes"


def test_disk_of_a_missing_directory_cannot_be_synced(place: tuple[FileSystem, str]) -> None:
    fs, home = place
    fs.sync_all(home)
    with pytest.raises(MissingFile):
        fs.sync_all(f"{home}/none")


def test_a_sync_of_the_disk_that_fails_names_its_directory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def failed(_: int) -> int:
        ctypes.set_errno(errno.EIO)
        return -1

    monkeypatch.setattr("storage.files.sync_all._syncfs", lambda: failed)
    with pytest.raises(DiskError) as caught:
        LocalFileSystem().sync_all("/")
    assert (caught.value.path, caught.value.errno) == ("/", errno.EIO)
    assert not isinstance(caught.value, SyncFailed)


def test_what_a_killed_process_has_written_is_there_but_not_durable() -> None:
    disk = MemoryFileSystem()
    disk.open("/f", create=True).append([b"bytes"])

    left = disk.after_kill()

    assert left.read_bytes("/f") == b"bytes"
    assert left.after_crash(Loss.EVERYTHING, Random(0)).list("/") == []


def test_torn_crash_never_touches_synced_bytes_and_does_tear_the_others() -> None:
    disk = MemoryFileSystem()
    file = disk.open("/f", create=True)
    disk.sync_directory("/")
    file.append([b"s" * 700])
    file.sync()
    file.append([b"u" * 9000])

    left = {disk.after_crash(Loss.TORN, Random(seed)).read_bytes("/f") for seed in range(100)}

    assert all(data.startswith(b"s" * 700) for data in left)
    assert len(left) > 20
    assert any(b"\0" * 512 in data for data in left)


def test_replacement_is_whole_after_any_crash() -> None:
    disk = MemoryFileSystem()
    disk.replace_durably("/m", b"old" * 400)
    seen: set[bytes] = set()

    def crash(_action: str, _path: str) -> None:
        for seed in range(20):
            seen.add(disk.after_crash(Loss.TORN, Random(seed)).read_bytes("/m"))

    disk.on_operation = crash
    disk.replace_durably("/m", b"new" * 400)

    assert seen == {b"old" * 400, b"new" * 400}
    assert disk.after_crash(Loss.EVERYTHING, Random(0)).read_bytes("/m") == b"new" * 400


@pytest.fixture
def threads_that_alternate_often() -> Iterator[None]:
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.usefixtures("threads_that_alternate_often")
def test_crash_state_in_memory_is_created_between_the_changes_of_other_threads() -> None:
    disk = MemoryFileSystem()
    for name in ("/a", "/b"):
        disk.make_directory(name)
        for number in range(50):
            disk.write_bytes(f"{name}/old-{number}", b"x")

    def change(home: str) -> None:
        for number in range(400):
            disk.replace_durably(f"{home}/{number}", b"new")
            disk.unlink(f"{home}/{number}")

    def crash(_: str) -> None:
        for number in range(400):
            disk.after_crash(Loss.TORN, Random(number))
            assert len(disk.after_kill().list("/a")) >= 50

    with ThreadPoolExecutor(3) as executor:
        work = [executor.submit(*job) for job in ((change, "/a"), (change, "/b"), (crash, ""))]
    for each in work:
        each.result()


def test_a_change_of_bytes_changes_the_time_and_another_name_does_not(
    place: tuple[FileSystem, str],
) -> None:
    fs, home = place
    fs.write_bytes(f"{home}/f", b"ab")
    before = fs.modified_ns(f"{home}/f")
    fs.link(f"{home}/f", f"{home}/g")
    fs.rename(f"{home}/f", f"{home}/h")

    assert fs.modified_ns(f"{home}/g") == fs.modified_ns(f"{home}/h") == before
    deadline = time.monotonic() + 10
    while fs.modified_ns(f"{home}/g") == before:
        # The clock of a file system may be coarse.
        assert time.monotonic() < deadline
        fs.write_bytes(f"{home}/h", b"cd")
    assert fs.modified_ns(f"{home}/h") > before
    with pytest.raises(MissingFile):
        fs.modified_ns(f"{home}/f")


def test_names_of_one_file_are_known_by_its_identity(place: tuple[FileSystem, str]) -> None:
    fs, home = place
    fs.write_bytes(f"{home}/f", b"abc")
    alone = fs.identity(f"{home}/f")
    assert (alone.names_count, alone.size) == (1, 3)
    assert fs.is_plain_file(f"{home}/f")
    fs.make_directory(f"{home}/d")
    fs.link(f"{home}/f", f"{home}/d/g")
    fs.write_bytes(f"{home}/other", b"abc")
    assert fs.identity(f"{home}/f") == fs.identity(f"{home}/d/g")
    assert fs.identity(f"{home}/f").number == alone.number != fs.identity(f"{home}/other").number
    assert fs.identity(f"{home}/f").names_count == 2
    assert not fs.is_plain_file(f"{home}/f")
    fs.unlink(f"{home}/f")
    assert fs.identity(f"{home}/d/g") == alone
    with pytest.raises(MissingFile):
        fs.identity(f"{home}/f")


def test_file_with_two_names_is_one_file_after_a_crash() -> None:
    fs = MemoryFileSystem()
    fs.write_bytes("f", b"abc")
    fs.link("f", "g")
    fs.sync_all("/")
    left = fs.after_crash(Loss.EVERYTHING, Random(0))
    left.overwrite("f", 0, b"x")
    assert left.read_bytes("g") == b"xbc"
