"""What beside a log may still have its old records is found, and only what may go is dropped."""

from __future__ import annotations

import uuid

from storage.files.kept_copies import kept_copies
from storage.files.paths import segment_file, topic_directory
from storage.state.moment import Moment
from tests.harness.compacted_log import CompactedLog
from tests.harness.memory_fs import MemoryFileSystem

TOPIC = f"data/{topic_directory('orders', uuid.UUID(int=1))}"
LOG = f"{TOPIC}/0"


def disk(*paths: str) -> MemoryFileSystem:
    fs = MemoryFileSystem()
    for path in (f"{LOG}/manifest", *paths):
        fs.make_directory(path.rpartition("/")[0])
        fs.write_bytes(path, b"bytes")
    return fs


def found(fs: MemoryFileSystem, *listed: tuple[int, int]) -> set[str]:
    return {copy.path for copy in kept_copies(fs, LOG, lambda: set(listed))}


def test_the_segments_of_the_log_are_no_copies() -> None:
    fs = disk(*(f"{LOG}/{segment_file(0, 3, kind)}" for kind in (".log", ".index", ".keys")))

    assert found(fs, (0, 3)) == set()


def test_everything_beside_them_is_named() -> None:
    copies = {
        f"{LOG}/{segment_file(0, 1, '.log')}",
        f"{LOG}/{segment_file(5, 9, '.log', cleaned=True)}",
        f"{LOG}/cut.7.0",
        f"{TOPIC}/0.aside.120",
        f"{TOPIC}/0.aside.part",
        f"{TOPIC}/0.resync",
        f"{TOPIC}.before",
        "data/leases/4711",
        f"data/snapshots/s1/{TOPIC.removeprefix('data/')}/0/{segment_file(0, 2, '.log')}",
        f"data/snapshots/s2.part/{TOPIC.removeprefix('data/')}/0/{segment_file(0, 1, '.log')}",
    }
    paths = [path if path.endswith((".log", ".cleaned", ".0")) else f"{path}/x" for path in copies]
    fs = disk(*paths, f"{TOPIC}/10.aside.120/x", f"{LOG}/{segment_file(0, 3, '.log')}")

    assert found(fs, (0, 3)) == copies
    assert all(copy.what and copy.remedy for copy in kept_copies(fs, LOG, set))


def test_a_replaced_segment_is_a_copy_until_its_last_reader_lets_go() -> None:
    log = CompactedLog()
    log.append_segment((b"a", b"1"), (b"a", b"2"), (b"b", b"1"))
    reader = log.log.segments[0].files
    reader.pin()
    log.clean()

    def copies() -> list[str]:
        names = {(each.base_offset, each.file_version) for each in log.log.segments}
        return [copy.what for copy in kept_copies(log.fs, log.log.directory, lambda: names)]

    assert copies() == ["a replaced segment that a reader still uses"]
    reader.unpin()
    assert copies() == []


def test_a_segment_of_a_snapshot_is_no_copy_while_the_log_has_it() -> None:
    log = CompactedLog()
    log.append_segment((b"a", b"1"), (b"a", b"2"), (b"b", b"1"))
    moment = Moment()
    log.log.prepare_moment(moment)
    moment.has_begun = True
    log.log.take_moment(log.now_ms)
    log.log.link_moment("data/snapshots/s1/orders/0")
    log.log.end_moment()

    def copies() -> list[str]:
        names = {(each.base_offset, each.file_version) for each in log.log.segments}
        return [copy.what for copy in kept_copies(log.fs, log.log.directory, lambda: names)]

    assert copies() == []
    log.clean()
    assert copies() == ["a segment of snapshot s1"]
