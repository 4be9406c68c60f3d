"""The last record of each key is found from the files of a log after any history."""

from __future__ import annotations

from array import array
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleaner.inspect.last_offsets import LogKeys
from cleaner.pacing.meter import unpaced_meter
from protocol.wire.errors import CorruptBatch
from storage.files.paths import KEYS, LOG, join
from storage.formats.compaction_strategy import BY_OFFSET, CompactionStrategy, Ranking
from storage.log.on_disk import look_at_log
from tests.harness.compacted_log import CONFIG, DIRECTORY, SETTINGS, CompactedLog, identity
from tests.harness.examples import not_quick
from tests.harness.log_builder import batch_of, valid
from tests.harness.log_transactions import committed_offsets
from tests.properties.test_transaction_cleaning import STEPS, History

TINY_MAP = 16 * 24
"""Room for fourteen keys."""
LARGE_MAP = 1 << 20


def found(
    log: CompactedLog,
    *,
    memory_bytes: int = LARGE_MAP,
    strategy: CompactionStrategy = BY_OFFSET,
) -> list[int]:
    looked_at = look_at_log(log.fs, identity())
    assert looked_at is not None
    with LogKeys(log.fs, looked_at, strategy, unpaced_meter()) as keys:
        parts = [array("q", bytes(part)) for part in keys.last_offsets(memory_bytes)]
    every = sorted(offset for part in parts for offset in part)
    assert len(every) == len(set(every))
    return [offset for offset in every if offset >= looked_at.log_start_offset]


@not_quick
@settings(max_examples=100, deadline=None)
@given(st.lists(STEPS, min_size=4, max_size=40), st.sampled_from((TINY_MAP, LARGE_MAP)))
def test_they_are_those_that_a_committed_reader_sees_last(
    steps: list[object], memory_bytes: int
) -> None:
    history = History(CompactedLog(replace(CONFIG, segment_bytes=300), SETTINGS))
    for step in steps:
        history.do(step)

    keys = {each.offset: each.key for each in history.sent}
    last = {keys[offset]: offset for offset in committed_offsets(history.log.log)}

    assert found(history.log, memory_bytes=memory_bytes) == sorted(last.values())


def many_keys(count: int) -> CompactedLog:
    log = CompactedLog(replace(CONFIG, segment_bytes=500), SETTINGS)
    for number in range(count):
        log.append((f"k{number}".encode(), b"v"))
    return log


def test_more_keys_than_the_memory_holds_take_more_scans() -> None:
    log = many_keys(200)
    looked_at = look_at_log(log.fs, identity())
    assert looked_at is not None
    with LogKeys(log.fs, looked_at, BY_OFFSET, unpaced_meter()) as keys:
        assert len(list(keys.last_offsets(TINY_MAP))) > 1
    assert found(log, memory_bytes=TINY_MAP) == list(range(200))


def test_a_record_without_a_key_is_noted_and_is_nothing_last() -> None:
    log = CompactedLog()
    log.append((b"a", b"1"))
    assert not has_unkeyed(log)
    log.append((None, b"2"))
    assert has_unkeyed(log)
    assert found(log) == [0]


def flip(log: CompactedLog, name: str, position: int) -> None:
    path = join(DIRECTORY, name)
    data = bytearray(log.fs.read_bytes(path))
    data[position] ^= 1
    log.fs.write_in_place(path, bytes(data))


def has_unkeyed(log: CompactedLog) -> bool:
    looked_at = look_at_log(log.fs, identity())
    assert looked_at is not None
    with LogKeys(log.fs, looked_at, BY_OFFSET, unpaced_meter()) as keys:
        return keys.has_unkeyed


def test_with_versions_an_earlier_record_may_be_the_last_one() -> None:
    log = CompactedLog()
    for timestamp in (2000, 1000):
        log.append_batch(valid(batch_of([(b"a", b"v")], timestamps=(timestamp,))))

    assert found(log, strategy=CompactionStrategy(Ranking.TIMESTAMP)) == [0]
    assert found(log) == [1]


@pytest.mark.parametrize("memory_bytes", [TINY_MAP, LARGE_MAP])
def test_a_sidecar_that_is_damaged_is_not_used(memory_bytes: int) -> None:
    log = many_keys(50)
    log.append((b"k0", b"again"))
    log.roll()
    log.clean()
    expected = found(log, memory_bytes=memory_bytes)
    assert expected == list(range(1, 51))
    for name in log.files():
        if name.endswith(KEYS):
            flip(log, name, 60)

    assert found(log, memory_bytes=memory_bytes) == expected


def test_without_the_key_of_its_directory_a_copy_is_read_completely() -> None:
    log = many_keys(50)
    log.roll()
    log.clean()
    looked_at = look_at_log(log.fs, replace(identity(), hash_key=b""))
    assert looked_at is not None
    with LogKeys(log.fs, looked_at, BY_OFFSET, unpaced_meter()) as keys:
        (part,) = keys.last_offsets(LARGE_MAP)
    assert sorted(array("q", bytes(part))) == list(range(50))


def test_a_damaged_segment_without_a_sidecar_is_an_error() -> None:
    log = many_keys(50)
    log.roll()
    log.reopen(is_clean=True)
    flip(log, next(name for name in log.files() if name.endswith(LOG)), 70)

    with pytest.raises(CorruptBatch):
        found(log)
