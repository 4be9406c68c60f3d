"""A log that is cleaned while its view is read is sent as it is stored soon after."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Epoch, Offset
from server.lookup.key_tables import KeyTables
from server.lookup.view_reads import ViewRead, ViewReads
from server.runtime.executors import Executor
from tests.harness.compacted_log import SETTINGS, CompactedLog
from tests.harness.latest_view import notes_followed
from tests.harness.log_builder import records_in
from tests.harness.memory_fs import MemoryFileSystem

RECORDS = 300
"""Several blocks of offsets."""


@pytest.fixture
def reads() -> Iterator[ViewReads]:
    thread = Executor("lookups", threads=2)
    tables = KeyTables(
        thread,
        MemoryFileSystem(),
        settings=lambda: SETTINGS,
        bytes_max=lambda: 1 << 30,
        monotonic=lambda: 0.0,
    )

    async def made() -> KeyTables:
        return tables

    yield ViewReads(made)
    thread.close()


async def offsets(reads: ViewReads, log: CompactedLog, start: int = 0) -> list[int]:
    """The offsets of the records that one read gets."""
    read = await reads.read(
        log.log,
        Offset(start),
        bytes_max=1 << 20,
        whole_first_batch=True,
        last_fetched_epoch=Epoch(-1),
    )
    assert not isinstance(read, ErrorCode)
    return [each.offset for each in records_in(_bytes_of(read))]


def _bytes_of(read: ViewRead) -> bytes:
    stored = b"".join(each.read_bytes() for each in read.read.regions)
    for each in read.read.regions:
        each.release()
    return stored + b"".join(read.records)


def log_with_outranked_records() -> CompactedLog:
    log = CompactedLog()
    for _ in range(2):
        log.append(*((b"key-%d" % number, b"v") for number in range(RECORDS // 2)))
    return log


async def test_after_a_pass_the_first_read_is_filtered_and_those_after_it_are_not(
    reads: ViewReads,
) -> None:
    log = log_with_outranked_records()
    last = [*range(RECORDS // 2, RECORDS)]
    assert await offsets(reads, log) == last
    log.clean()
    assert await offsets(reads, log) == last
    assert (reads.facts().filtered_total, reads.facts().stored_total) == (2, 0)

    await notes_followed()
    assert await offsets(reads, log) == last
    assert (reads.facts().filtered_total, reads.facts().stored_total) == (2, 1)


async def test_a_record_that_was_written_again_since_the_pass_is_not_sent(reads: ViewReads) -> None:
    log = log_with_outranked_records()
    await offsets(reads, log)
    log.clean()
    await offsets(reads, log)
    log.append((b"key-1", b"later"))
    await notes_followed()

    last = [at for at in range(RECORDS // 2, RECORDS + 1) if at != RECORDS // 2 + 1]
    assert await offsets(reads, log) == last
    assert await offsets(reads, log) == last


async def test_a_reader_of_the_dirty_end_lets_nothing_be_renewed(
    reads: ViewReads, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = log_with_outranked_records()
    await offsets(reads, log)
    log.clean()
    log.append((b"a", b"1"), (b"a", b"2"))
    monkeypatch.setattr(KeyTables, "follow_passes", None)
    assert await offsets(reads, log, RECORDS) == [RECORDS + 1]
