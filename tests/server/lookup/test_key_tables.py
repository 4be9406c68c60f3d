"""The tables of all logs share their memory, and requests about one log take turns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from cleaner.lookup import dead_notes
from cleaner.lookup.key_table import KEYS_MIN, KeyTable, table_bytes
from cleaner.lookup.last_records import Room
from cleaner.lookup.spilled_keys import SpilledKeys
from cleaner.rules.latest import Rank
from cleaner.rules.step import SpillDamaged
from metrics.facts import KeyLookupFacts
from protocol.wire.numbers import Offset
from server.lookup import key_tables
from server.lookup.key_lookups import KeyLookups
from server.lookup.key_tables import KeyTables, LookupEnded, TooManyKeys
from server.runtime.executors import Executor
from server.runtime.turns import Turns
from storage.files.errors import NoSpace
from storage.files.files import FileSystem
from storage.formats.compaction_strategy import BY_OFFSET
from tests.harness.compacted_log import CONFIG, SETTINGS, CompactedLog
from tests.harness.latest_view import notes_followed
from tests.harness.memory_fs import MemoryFile, MemoryFileSystem

ONE_TABLE = table_bytes(KEYS_MIN + 1, BY_OFFSET)


@pytest.fixture
def thread() -> Iterator[Executor]:
    executor = Executor("lookups", threads=2)
    yield executor
    executor.close()


@pytest.fixture(autouse=True)
def one_offset_to_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that short logs have something that is sent as it is stored."""
    monkeypatch.setattr(dead_notes, "BLOCK_SHIFT_MIN", 0)


def tables_with(
    thread: Executor,
    fs: FileSystem | None = None,
    *,
    bytes_max: int = 1 << 30,
    monotonic: Callable[[], float] = lambda: 0.0,
) -> KeyTables:
    return KeyTables(
        thread,
        fs or MemoryFileSystem(),
        settings=lambda: SETTINGS,
        bytes_max=lambda: bytes_max,
        monotonic=monotonic,
    )


def log_with(value: bytes) -> CompactedLog:
    log = CompactedLog()
    log.append((b"a", value))
    return log


async def value(tables: KeyTables, log: CompactedLog) -> bytes | None:
    async def made() -> KeyTables:
        return tables

    (record,) = await KeyLookups(made, Turns()).find(log.log, [b"a"], Room(1000))
    assert record is not None
    return record.value


async def test_a_table_is_made_once_and_used_again(thread: Executor) -> None:
    tables, log = tables_with(thread), log_with(b"1")
    assert await value(tables, log) == b"1"
    log.append((b"a", b"2"))

    assert [await value(tables, log) for _ in range(3)] == [b"2"] * 3
    facts = tables.facts()
    assert (facts.tables, facts.made_total, facts.lookups_total) == (1, 1, 4)


async def test_concurrent_tables_in_one_log_take_turns(thread: Executor) -> None:
    tables, log = tables_with(thread), log_with(b"1")

    found = await asyncio.gather(*(value(tables, log) for _ in range(20)))

    assert found == [b"1"] * 20
    assert tables.facts().made_total == 1


async def test_the_table_that_was_not_used_for_the_longest_time_makes_room(
    thread: Executor,
) -> None:
    tables = tables_with(thread, bytes_max=2 * ONE_TABLE)
    first, second, third = (log_with(b"%d" % number) for number in range(3))
    for log in (first, second, first, third):
        await value(tables, log)
    assert tables.facts().table_bytes <= 2 * ONE_TABLE
    assert tables.facts().tables == 2

    await value(tables, first)
    assert tables.facts().made_total == 3
    await value(tables, second)
    assert tables.facts().made_total == 4


async def test_a_table_grows_with_its_keys_and_others_make_room(thread: Executor) -> None:
    tables = tables_with(thread, bytes_max=8 * ONE_TABLE)
    small, large = log_with(b"1"), log_with(b"1")
    await value(tables, small)
    await value(tables, large)
    large.append(*((b"key-%d" % number, b"v") for number in range(5 * KEYS_MIN)))
    large.append((b"a", b"2"))

    assert await value(tables, large) == b"2"
    assert await value(tables, small) == b"1"
    assert tables.facts().table_bytes <= 8 * ONE_TABLE


async def test_a_table_that_is_larger_than_all_may_be_is_refused_and_takes_nothing(
    thread: Executor,
) -> None:
    tables, log = tables_with(thread, bytes_max=2 * ONE_TABLE), log_with(b"1")
    log.append(*((b"key-%d" % number, b"v") for number in range(9 * KEYS_MIN)))

    with pytest.raises(TooManyKeys) as refused:
        await value(tables, log)
    assert refused.value.bytes_needed > refused.value.bytes_max == 2 * ONE_TABLE
    assert tables.facts().table_bytes == 0
    assert await value(tables, log_with(b"2")) == b"2"


# ---------------------------------------------------------------- keys on the disk


KEYS = 9 * KEYS_MIN


@pytest.fixture
def spilling(monkeypatch: pytest.MonkeyPatch) -> int:
    """Returns how much memory tables may take, where a log with many keys needs more."""
    monkeypatch.setattr(key_tables, "SPILLING_BYTES_MIN", 1)
    return 2 * ONE_TABLE


def log_with_many_keys() -> CompactedLog:
    log = log_with(b"1")
    log.append(*((b"key-%d" % number, b"%d" % number) for number in range(KEYS)))
    return log


async def found(tables: KeyTables, log: CompactedLog, *keys: bytes) -> list[bytes | None]:
    async def made() -> KeyTables:
        return tables

    records = await KeyLookups(made, Turns()).find(log.log, keys, Room(1 << 20))
    return [None if record is None else record.value for record in records]


async def test_a_table_that_is_larger_than_all_may_be_goes_to_the_disk(
    thread: Executor, spilling: int
) -> None:
    log = log_with_many_keys()
    tables = tables_with(thread, log.fs, bytes_max=spilling)
    numbers = range(0, KEYS, 97)
    keys = [b"key-%d" % number for number in numbers]

    assert await found(tables, log, *keys) == [b"%d" % number for number in numbers]
    assert await found(tables, log, b"a", b"none") == [b"1", None]
    log.append((b"key-5", b"new"), (b"none", b"here"))
    assert await found(tables, log, b"key-5", b"none", b"key-6") == [b"new", b"here", b"6"]
    facts = tables.facts()
    assert facts.made_total == 1
    assert facts.table_bytes <= spilling // 2
    assert 24 * KEYS < facts.spilled_bytes < 25 * KEYS
    # The file has no name.
    assert log.fs.list(log.log.directory) == sorted(
        each for each in log.fs.list(log.log.directory) if not each.endswith(".tmp")
    )


async def test_keys_on_the_disk_are_made_again_after_a_truncation(
    thread: Executor, spilling: int
) -> None:
    log = log_with_many_keys()
    tables = tables_with(thread, log.fs, bytes_max=spilling)
    log.append((b"key-5", b"new"))
    assert await found(tables, log, b"key-5") == [b"new"]
    log.log.truncate_to(Offset(KEYS + 1))

    assert await found(tables, log, b"key-5", b"key-6") == [b"5", b"6"]
    assert tables.facts().made_total == 2


async def test_a_changed_block_is_noticed_and_the_table_made_again(
    thread: Executor, spilling: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = log_with_many_keys()
    tables = tables_with(thread, log.fs, bytes_max=spilling)
    await found(tables, log, b"key-5")
    read = SpilledKeys._find_in
    damaged = ["on the loop", "in a thread"]

    def changed(its: SpilledKeys, number: int, hashed: bytes, **named: bool) -> Rank | None:
        if damaged:
            raise SpillDamaged(damaged.pop(0))
        return read(its, number, hashed, **named)

    monkeypatch.setattr(SpilledKeys, "_find_in", changed)
    assert await found(tables, log, b"key-5") == [b"5"]
    assert tables.facts().made_total == 2


async def test_a_full_disk_fails_the_lookup_and_leaves_nothing(
    thread: Executor, spilling: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = log_with_many_keys()
    tables = tables_with(thread, log.fs, bytes_max=spilling)
    append = MemoryFile.append

    def full(file: MemoryFile, parts: Any) -> int:
        if file.path.endswith(".tmp"):
            raise NoSpace("append to", file.path, 28, "no space left on the device")
        return append(file, parts)

    with monkeypatch.context() as patch:
        patch.setattr(MemoryFile, "append", full)
        with pytest.raises(NoSpace):
            await found(tables, log, b"key-5")
    assert tables.facts() == KeyLookupFacts()
    assert log.log.offline_reason is None
    assert await found(tables, log, b"key-5") == [b"5"]


async def test_a_cancelled_request_leaves_the_table_to_the_next_one(thread: Executor) -> None:
    tables, log = tables_with(thread), log_with(b"1")
    request = asyncio.create_task(value(tables, log))
    await asyncio.sleep(0)
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request

    assert await value(tables, log) == b"1"
    assert tables.facts().made_total == 1


async def test_a_broker_that_stops_answers_no_more(thread: Executor) -> None:
    tables, log = tables_with(thread), log_with(b"1")
    await value(tables, log)
    await tables.stop()

    with pytest.raises(LookupEnded, match="the broker stops"):
        await value(tables, log)


async def test_the_table_of_a_deleted_log_makes_room_at_the_next_new_one(thread: Executor) -> None:
    tables, log = tables_with(thread), log_with(b"1")
    await value(tables, log)
    log.log.retire()

    await value(tables, log_with(b"2"))
    assert tables.facts().tables == 1


# ---------------------------------------------------------------- passes


async def live_until(tables: KeyTables, log: CompactedLog) -> int:
    """Up to where the log is sent as it is stored."""
    return await tables.use(log.log, lambda table, _: table.live_until(Offset(0)))


async def cleaned(tables: KeyTables) -> CompactedLog:
    """A log that a pass has cleaned after its table was made: three segments, all last records."""
    log = CompactedLog(replace(CONFIG, segment_bytes=1, compaction_undo_ms=60_000))
    for key in (b"a", b"b", b"c", b"a", b"b", b"c"):
        log.append((key, b"1"))
    assert await live_until(tables, log) == 0
    log.clean()
    return log


async def test_after_a_pass_the_notes_follow_in_the_background(thread: Executor) -> None:
    tables = tables_with(thread)
    log = await cleaned(tables)
    assert await live_until(tables, log) == 0

    tables.follow_passes(log.log)
    tables.follow_passes(log.log)
    await notes_followed()
    assert await live_until(tables, log) == 6
    assert tables.facts().made_total == 1


async def test_requests_come_between_the_slices_of_a_renewal(thread: Executor) -> None:
    seconds = count()
    tables = tables_with(thread, monotonic=lambda: float(next(seconds)))
    log = await cleaned(tables)

    tables.follow_passes(log.log)
    log.append((b"a", b"2"))
    ended = asyncio.create_task(notes_followed())
    for _ in range(3):
        assert await value(tables, log) == b"2"
        assert not ended.done()
    await ended
    assert await live_until(tables, log) == 3


async def test_notes_that_follow_are_not_renewed_again(
    thread: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = tables_with(thread)
    log = await cleaned(tables)
    tables.follow_passes(log.log)
    await notes_followed()
    monkeypatch.setattr(KeyTable, "renew_notes", None)

    tables.follow_passes(log.log)
    await notes_followed()
    tables.follow_passes(CompactedLog().log)
    assert await live_until(tables, log) == 6


async def test_a_broker_that_stops_ends_a_renewal(thread: Executor) -> None:
    seconds = count()
    tables = tables_with(thread, monotonic=lambda: float(next(seconds)))
    log = await cleaned(tables)
    tables.follow_passes(log.log)
    await asyncio.sleep(0)

    await tables.stop()
    await notes_followed()
    tables.follow_passes(log.log)
    assert [each.get_name() for each in asyncio.all_tasks() if "notes" in each.get_name()] == []


async def test_a_table_that_makes_room_ends_its_renewal(thread: Executor) -> None:
    seconds = count()
    tables = tables_with(thread, bytes_max=ONE_TABLE, monotonic=lambda: float(next(seconds)))
    log = await cleaned(tables)
    tables.follow_passes(log.log)
    await asyncio.sleep(0)

    await value(tables, log_with(b"2"))
    await notes_followed()
    assert tables.facts().tables == 1
    assert await live_until(tables, log) == 6


async def test_an_undo_during_a_renewal_lets_the_table_be_made_again(thread: Executor) -> None:
    tables = tables_with(thread)
    log = await cleaned(tables)
    tables.follow_passes(log.log)
    log.log.undo_pass(log.log.passes_kept[-1].number)
    await notes_followed()
    assert await live_until(tables, log) == 0
    assert tables.facts().made_total == 2
