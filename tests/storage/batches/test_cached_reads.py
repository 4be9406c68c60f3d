"""A read that must not wait raises NotCached if it would have to; other reads fill the page cache."""

from __future__ import annotations

import threading

import pytest

from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Offset
from storage.files.errors import CorruptLog, NotCached
from storage.files.paths import LOG, OFFSET_INDEX
from storage.log.log import PartitionLog
from storage.segment.reader import Isolation, ReadResult
from tests.harness.log_builder import batch_of, records_in, valid
from tests.harness.log_home import LogHome
from tests.harness.memory_fs import MemoryFileSystem


def reopened(disk: MemoryFileSystem) -> PartitionLog:
    """A log of several segments after a clean stop, with no file open."""
    home = LogHome(disk)
    log = home.create()
    for _ in range(40):
        log.appender.append_as_leader(valid(batch_of([(b"k", bytes(60))])), now_ms=0)
    log.close()
    return home.open(is_clean=True)


def read(log: PartitionLog, offset: int, *, cached_only: bool) -> list[int]:
    result = log.reader.read(
        Offset(offset),
        max_bytes=300,
        whole_first_batch=True,
        isolation=Isolation.READ_UNCOMMITTED,
        cached_only=cached_only,
    )
    assert isinstance(result, ReadResult), ErrorCode(result)
    data = b"".join(region.read_bytes() for region in result.regions)
    result.release()
    return [record.offset for record in records_in(data)]


@pytest.mark.parametrize("offset", [0, 2, 17, 39])
def test_first_read_of_a_segment_opens_its_files_where_waiting_is_allowed(offset: int) -> None:
    log = reopened(MemoryFileSystem())
    with pytest.raises(NotCached):
        read(log, offset, cached_only=True)
    expected = read(log, offset, cached_only=False)
    assert expected[0] == offset
    assert read(log, offset, cached_only=True) == expected


def test_cold_file_is_read_by_the_thread_that_may_wait_and_is_warm_for_the_others() -> None:
    disk = MemoryFileSystem()
    log = reopened(disk)
    read(log, 0, cached_only=False)
    path = log.segments[0].path(LOG)
    disk.cold.add(path)
    with pytest.raises(NotCached):
        read(log, 0, cached_only=True)
    assert not disk.waits
    worker = threading.Thread(target=lambda: read(log, 0, cached_only=False))
    worker.start()
    thread = worker.ident
    worker.join()
    assert disk.waits == [(path, thread)]
    assert read(log, 0, cached_only=True)[0] == 0


def test_nothing_stays_pinned_by_a_read_that_found_nothing_in_memory() -> None:
    disk = MemoryFileSystem()
    log = reopened(disk)
    for segment in log.segments:
        disk.cold.add(segment.path(LOG))
    for offset in range(40):
        with pytest.raises(NotCached):
            read(log, offset, cached_only=True)
    assert all(segment.files._pins == 0 for segment in log.segments)


def test_lying_index_is_rebuilt_only_where_waiting_is_allowed() -> None:
    disk = MemoryFileSystem()
    log = reopened(disk)
    segment = log.segments[0]
    expected = read(log, 3, cached_only=False)
    path = segment.path(OFFSET_INDEX)
    size = disk.size(path)
    assert size
    disk.write_bytes(path, bytes.fromhex("00000002 00000001") * (size // 8))
    segment._sealed_index = None
    with pytest.raises(NotCached):
        read(log, 3, cached_only=True)
    assert read(log, 3, cached_only=False) == expected
    assert read(log, 3, cached_only=True) == expected


def test_region_that_its_file_does_not_have_any_more_is_an_error_not_a_short_answer() -> None:
    disk = MemoryFileSystem()
    log = reopened(disk)
    assert read(log, 0, cached_only=False)
    with log.segments[0].pinned() as file:
        file.truncate(100)
    with pytest.raises(CorruptLog):
        read(log, 0, cached_only=False)
    assert log.segments[0].files._pins == 0
