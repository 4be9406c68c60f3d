"""One record is read by its offset, also where batches are large, or not where the index says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cleaner.lookup import record_at as module
from cleaner.lookup.record_at import record_at
from protocol.wire.numbers import Offset, Position, RelativeOffset
from storage.files.errors import NotCached
from storage.segment import sealed_index
from tests.harness.compacted_log import CONFIG, CompactedLog

PLENTY = 1 << 24


def sealed(*sizes: int) -> CompactedLog:
    """A log with a sealed segment of batches of one record, each with a value of some size."""
    log = CompactedLog(replace(CONFIG, index_interval_bytes=1))
    for number, size in enumerate(sizes):
        log.append((b"k%d" % number, b"%d" % number * size))
    log.roll()
    log.log.segments[0].seal()
    return log


def value_at(log: CompactedLog, offset: int, **settings: int) -> bytes | None:
    found = record_at(log.log.segments, Offset(offset), decompressed_bytes_max=PLENTY, **settings)
    assert found is None or found.offset == offset
    return None if found is None else found.value


def test_every_record_is_found_whatever_the_size_of_the_batches() -> None:
    sizes = [10, 40_000, 10, 100_000, 33_000, 10]
    log = sealed(*sizes)

    for offset, size in enumerate(sizes):
        assert value_at(log, offset) == b"%d" % offset * size
    assert value_at(log, len(sizes)) is None


def test_a_batch_behind_a_large_one_is_not_too_large_to_be_read_at_once() -> None:
    log = sealed(60_000, 60_000, 70_000)

    value_at(log, 0)  # Now the index is in memory.
    assert value_at(log, 1, cached_bytes_max=64 << 10) == b"1" * 60_000
    with pytest.raises(NotCached):
        value_at(log, 2, cached_bytes_max=64 << 10)


@pytest.mark.parametrize("position", [7, 1 << 30])
def test_a_wrong_index_is_made_again(position: int, monkeypatch: pytest.MonkeyPatch) -> None:
    log = sealed(10, 10, 10)
    log.reopen(is_clean=True)
    find = sealed_index.SealedIndex.entry_at_or_before

    def wrong(
        index: sealed_index.SealedIndex, offset: RelativeOffset
    ) -> tuple[RelativeOffset, Position] | None:
        entry = find(index, offset)
        return None if entry is None else (entry[0], Position(position))

    monkeypatch.setattr(sealed_index.SealedIndex, "entry_at_or_before", wrong)
    with pytest.raises(NotCached):
        value_at(log, 2, cached_bytes_max=64 << 10)
    assert [value_at(log, offset) for offset in range(3)] == [b"0" * 10, b"1" * 10, b"2" * 10]


def test_small_reads_find_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "READ_BYTES", 1)
    log = sealed(10, 300, 10)

    assert [value_at(log, offset) for offset in range(3)] == [b"0" * 10, b"1" * 300, b"2" * 10]
