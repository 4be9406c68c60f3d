"""Noted blocks are those with something that is not the last record of its key, and no others."""

from __future__ import annotations

import random

import pytest

from cleaner.kernel.kernel import (
    DeadOffsets,
    KeyIndexer,
    OffsetMap,
    map_keys,
    map_last_keys,
)
from protocol.records.record_batch import Record, build_batch
from storage.formats.compaction_strategy import BY_OFFSET, CompactionStrategy, Ranking
from tests.harness.log_builder import batch_of

HASH_KEY = bytes(range(16))
END = 1 << 40


def noted(dead: DeadOffsets, end: int) -> list[int]:
    """The offsets below an end that lie in noted blocks."""
    return [offset for offset in range(end) if dead.next_dead(offset, offset + 1) == offset]


@pytest.mark.parametrize("seed", range(20))
def test_a_search_finds_the_first_noted_offset_of_any_set(seed: int) -> None:
    source = random.Random(seed)
    start, shift = source.randrange(100), source.randrange(4)
    dead, model = DeadOffsets(start_offset=start, shift=shift), set[int]()
    for _ in range(source.randrange(20)):
        first = source.randrange(600)
        end = first + source.choice([0, 1, 1, 1, 40])
        dead.note(first, end)
        blocks = {(each - start) >> shift for each in range(max(first, start), end)}
        model |= {start + (block << shift) + at for block in blocks for at in range(1 << shift)}
    for offset in range(start, 700):
        for end in (offset, offset + 1, 700):
            first_dead = min((each for each in model if offset <= each < end), default=end)
            assert dead.next_dead(offset, end) == first_dead


def test_offsets_far_beyond_the_last_note_are_free() -> None:
    dead = DeadOffsets(start_offset=10, shift=6)
    assert dead.next_dead(10, END) == END
    dead.note(10_000_000, 10_000_001)
    assert dead.next_dead(10, END) <= 10_000_000
    assert dead.next_dead(10_000_100, END) == END
    assert dead.memory_bytes < 100_000


@pytest.mark.parametrize("arguments", [(-1, 0), (0, -1), (0, 63)])
def test_impossible_bounds_are_refused(arguments: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="shift"):
        DeadOffsets(start_offset=arguments[0], shift=arguments[1])


def put(
    block: bytes,
    offset_map: OffsetMap,
    dead: DeadOffsets,
    start: int = 0,
    end: int = 40,
    segment_end: int = 40,
) -> bool:
    return map_last_keys(
        block,
        offset_map,
        dead,
        base_offset=0,
        segment_end_offset=segment_end,
        start_offset=start,
        end_offset=end,
    )


def block_of(batches: list[bytes], strategy: CompactionStrategy = BY_OFFSET) -> bytes:
    indexer = KeyIndexer(HASH_KEY, base_offset=0, decompressed_bytes_max=1 << 20, strategy=strategy)
    block = indexer.feed(b"".join(batches)).block
    assert block is not None
    return block


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("has_versions", [False, True])
def test_the_map_is_that_of_a_pass_and_all_others_are_noted(seed: int, has_versions: bool) -> None:
    source = random.Random(seed)
    strategy = CompactionStrategy(Ranking.TIMESTAMP) if has_versions else BY_OFFSET
    records = [
        Record(offset=number, timestamp=source.randrange(5), key=b"%d" % source.randrange(9), value=b"")
        for number in range(40)
    ]  # fmt: skip
    batches = [bytes(build_batch(records[at : at + 5], base_offset=at)) for at in range(0, 40, 5)]
    block = block_of(batches, strategy)
    ours, its = (OffsetMap(1 << 16, HASH_KEY, has_versions=has_versions) for _ in range(2))
    dead = DeadOffsets(start_offset=0, shift=0)

    for start, end in ((0, 25), (25, 40)):
        map_keys(block, its, base_offset=0, start_offset=start, end_offset=end)
        assert put(block, ours, dead, start, end)

    last = {each.key: ours.get(each.key or b"") for each in records}
    assert last == {each.key: its.get(each.key or b"") for each in records}
    assert ours.tally == its.tally
    assert noted(dead, 40) == [each for each in range(40) if each not in last.values()]


def test_batches_that_are_not_sent_as_they_are_are_noted_whole() -> None:
    plain = batch_of([(b"a", b"")], base_offset=0)
    of_transaction = batch_of(
        [(b"b", b""), (b"c", b"")], base_offset=1, producer_id=1, producer_epoch=0,
        base_sequence=0, is_transactional=True,
    )  # fmt: skip
    block = block_of([bytes(plain), bytes(of_transaction)])
    dead = DeadOffsets(start_offset=0, shift=0)
    put(block, OffsetMap(1 << 16, HASH_KEY), dead, end=10, segment_end=10)
    assert noted(dead, 10) == [1, 2]


def test_a_segment_with_records_without_a_key_is_noted_whole() -> None:
    block = block_of([bytes(batch_of([(b"a", b""), (None, b"")], base_offset=0))])
    dead = DeadOffsets(start_offset=0, shift=0)
    put(block, OffsetMap(1 << 16, HASH_KEY), dead, end=7, segment_end=7)
    assert noted(dead, 10) == list(range(7))


def test_a_full_map_and_a_map_that_counts_are_refused() -> None:
    block = block_of([bytes(batch_of([(b"%d" % each, b"") for each in range(40)], base_offset=0))])
    dead = DeadOffsets(start_offset=0, shift=0)
    assert not put(block, OffsetMap(24 * 16, HASH_KEY), dead)
    with pytest.raises(ValueError, match="counts nothing"):
        put(block, OffsetMap(1 << 16, HASH_KEY, has_counts=True), dead)
