"""Noted blocks are those with something that is not the last record of its key, and no others."""

from __future__ import annotations

import random

import pytest

from cleaner.kernel.kernel import DeadOffsets, KeyIndexer, OffsetMap, map_keys
from protocol.records.record_batch import Record, build_batch
from storage.formats.compaction_strategy import BY_OFFSET, CompactionStrategy, Ranking
from tests.harness.log_builder import batch_of

HASH_KEY = bytes(range(16))
END = 1 << 40
LAST = (1 << 63) - 1


def noted(dead: DeadOffsets, end: int) -> list[int]:
    """The offsets below an end that lie in noted blocks."""
    return [offset for offset in range(end) if dead.next_dead(offset, offset + 1) == offset]


def put(
    block: bytes, offset_map: OffsetMap, dead: DeadOffsets, *, start: int = 0, end: int = END
) -> bool:
    step = map_keys(block, offset_map, base_offset=0, start_offset=start, end_offset=end, dead=dead)
    return not step.is_full


def block_of(batches: list[bytes], strategy: CompactionStrategy = BY_OFFSET) -> bytes:
    indexer = KeyIndexer(HASH_KEY, base_offset=0, decompressed_bytes_max=1 << 20, strategy=strategy)
    block = indexer.feed(b"".join(batches)).block
    assert block is not None
    return block


def dead_at(*offsets: int, start: int = 0, shift: int = 0, memory_bytes: int = 4096) -> DeadOffsets:
    """Notes that have these offsets: at each is a record that the next one outranks."""
    dead = DeadOffsets(start_offset=start, shift=shift, memory_bytes=memory_bytes)
    if offsets:
        at = [*sorted(offsets), max(offsets) + 1]
        block = block_of([bytes(batch_of([(b"k", b"")], base_offset=each)) for each in at])
        assert put(block, OffsetMap(1 << 16, HASH_KEY), dead)
    return dead


@pytest.mark.parametrize("seed", range(40))
def test_a_search_finds_the_first_noted_offset_of_any_set_in_any_memory(seed: int) -> None:
    source = random.Random(seed)
    start, shift = source.randrange(100), source.randrange(4)
    memory_bytes = source.choice([1, 2, 8, 100])
    offsets = {source.randrange(600) for _ in range(source.randrange(20))}
    dead = dead_at(*offsets, start=start, shift=shift, memory_bytes=memory_bytes)

    last = max((each - start for each in offsets), default=0)
    while last >> shift >= 8 * memory_bytes:
        shift += 1
    blocks = {(each - start) >> shift for each in offsets if each >= start}
    model = {start + (block << shift) + at for block in blocks for at in range(1 << shift)}
    for offset in range(start, 700):
        for end in (offset, offset + 1, 700):
            first_dead = min((each for each in model if offset <= each < end), default=end)
            assert dead.next_dead(offset, end) == first_dead
    assert dead.memory_bytes == memory_bytes


def test_offsets_far_beyond_the_last_note_are_free() -> None:
    assert dead_at().next_dead(10, END) == END
    dead = dead_at(10_000_000, start=10, shift=6)
    assert dead.next_dead(10, END) <= 10_000_000
    assert dead.next_dead(10_001_000, END) == END


def test_the_largest_offsets_have_room_in_the_least_memory() -> None:
    dead = DeadOffsets(start_offset=0, shift=0, memory_bytes=1)
    batch = bytes(batch_of([(None, b"")], base_offset=0))
    dead.note_special(block_of([batch]), base_offset=LAST - 1, segment_end_offset=LAST)
    assert dead.next_dead(0, LAST) < LAST
    assert dead.next_dead(0, 1 << 60) == 1 << 60


@pytest.mark.parametrize("seed", range(20))
def test_notes_are_copied_within_bounds_between_sets_with_blocks_of_any_size(seed: int) -> None:
    source = random.Random(seed)
    offsets = {source.randrange(300) for _ in range(source.randrange(20))}
    other = dead_at(*offsets, start=source.randrange(5), shift=source.randrange(4))
    dead = dead_at(start=source.randrange(5))
    first, end = source.randrange(100), source.randrange(100, 400)
    dead.note_as(other, first, end)
    assert noted(dead, 400) == [each for each in noted(other, 400) if first <= each < end]


@pytest.mark.parametrize("arguments", [(-1, 0, 8), (0, -1, 8), (0, 63, 8), (0, 0, 0)])
def test_impossible_bounds_are_refused(arguments: tuple[int, int, int]) -> None:
    start, shift, memory_bytes = arguments
    with pytest.raises(ValueError, match="shift"):
        DeadOffsets(start_offset=start, shift=shift, memory_bytes=memory_bytes)


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
    dead = dead_at()

    for start, end in ((0, 25), (25, 40)):
        map_keys(block, its, base_offset=0, start_offset=start, end_offset=end)
        assert put(block, ours, dead, start=start, end=end)

    last = {each.key: ours.get(each.key or b"") for each in records}
    assert last == {each.key: its.get(each.key or b"") for each in records}
    assert ours.tally == its.tally
    outranked = [each for each in range(40) if each not in last.values()]
    assert noted(dead, 40) == outranked
    again = dead_at()
    again.note_outranked(block, ours, base_offset=0, end_offset=35)
    assert noted(again, 40) == [each for each in outranked if each < 35]


def test_a_record_whose_key_the_map_lacks_is_noted() -> None:
    block, dead = block_of([bytes(batch_of([(b"a", b""), (b"b", b"")], base_offset=3))]), dead_at()
    offset_map = OffsetMap(1 << 16, HASH_KEY)
    offset_map.put(b"a", 3)
    dead.note_outranked(block, offset_map, base_offset=0, end_offset=END)
    assert noted(dead, 10) == [4]


def test_batches_that_are_not_sent_as_they_are_are_noted_whole() -> None:
    plain = batch_of([(b"a", b"")], base_offset=0)
    of_transaction = batch_of(
        [(b"b", b""), (b"c", b"")], base_offset=1, producer_id=1, producer_epoch=0,
        base_sequence=0, is_transactional=True,
    )  # fmt: skip
    dead = dead_at()
    block = block_of([bytes(plain), bytes(of_transaction)])
    dead.note_special(block, base_offset=0, segment_end_offset=10)
    assert noted(dead, 10) == [1, 2]


def test_a_segment_with_records_without_a_key_is_noted_whole() -> None:
    block = block_of([bytes(batch_of([(b"a", b""), (None, b"")], base_offset=0))])
    dead = dead_at()
    dead.note_special(block, base_offset=0, segment_end_offset=7)
    assert noted(dead, 10) == list(range(7))


def test_a_full_map_is_said_and_one_that_counts_or_has_a_part_is_refused() -> None:
    block = block_of([bytes(batch_of([(b"%d" % each, b"") for each in range(40)], base_offset=0))])
    assert not put(block, OffsetMap(24 * 16, HASH_KEY), dead_at())
    part = OffsetMap(1 << 16, HASH_KEY)
    part.clear(part=1, parts=2)
    with pytest.raises(ValueError, match="has every key"):
        put(block, part, dead_at())
