"""Keys that have left memory are found again, and of two records of a key the right one stays."""

from __future__ import annotations

import random

import pytest

from cleaner.kernel.kernel import (
    SPILLED_BLOCK_BYTES,
    DeadOffsets,
    OffsetMap,
    SpillMerge,
    find_spilled,
    siphash128,
)
from cleaner.rules.latest import Rank, wins
from cleaner.rules.step import SpillDamaged

HASH_KEY = bytes(16)
BLOCK = SPILLED_BLOCK_BYTES
EVERYTHING = 1 << 40


def hash_of(number: int) -> bytes:
    return siphash128(HASH_KEY, b"%d" % number)


def filled(ranks: dict[int, Rank], *, has_versions: bool) -> OffsetMap:
    made = OffsetMap(1 << 20, HASH_KEY, has_versions=has_versions)
    for number, rank in ranks.items():
        made.put_rank(hash_of(number), rank)
    return made


def notes() -> DeadOffsets:
    return DeadOffsets(start_offset=0, shift=0, memory_bytes=1 << 16)


def merged(offset_map: OffsetMap, earlier: bytes, dead: DeadOffsets, *, step: int = 1) -> bytes:
    merge = SpillMerge(offset_map, dead)
    size = step * BLOCK
    done = b"".join(merge.feed(earlier[at : at + size]) for at in range(0, len(earlier), size))
    while part := merge.rest(size):
        done += part
    return done


def found(blocks: bytes, number: int, *, has_versions: bool) -> Rank | None:
    ranks = (
        find_spilled(blocks[at : at + BLOCK], hash_of(number), has_versions=has_versions)
        for at in range(0, len(blocks), BLOCK)
    )
    return next(filter(None, ranks), None)


@pytest.mark.parametrize("has_versions", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_merges_keep_the_winner_of_each_key_and_note_the_loser(
    seed: int, *, has_versions: bool
) -> None:
    chance = random.Random(seed)
    expected: dict[int, Rank] = {}
    lost: set[int] = set()
    blocks, dead, offset = b"", notes(), 0
    for _ in range(4):
        ranks: dict[int, Rank] = {}
        for number in chance.sample(range(900), chance.choice((0, 1, 170, 600))):
            version = chance.randrange(3) if has_versions else 0
            ranks[number], offset = Rank(version, offset), offset + 1
        for number, rank in ranks.items():
            earlier = expected.get(number)
            if earlier is None or wins(rank, earlier):
                expected[number] = rank
            if earlier is not None:
                lost.add(earlier.offset if wins(rank, earlier) else rank.offset)
        blocks = merged(
            filled(ranks, has_versions=has_versions), blocks, dead, step=chance.choice((1, 3))
        )

    assert len(blocks) % BLOCK == 0
    assert {number: found(blocks, number, has_versions=has_versions) for number in range(900)} == {
        number: expected.get(number) for number in range(900)
    }
    assert {at for at in range(offset) if dead.next_dead(at, EVERYTHING) == at} == lost


def test_blocks_are_in_the_order_of_their_hashes_and_full_but_for_the_last() -> None:
    ranks = {number: Rank(0, number) for number in range(1_000)}
    blocks = merged(filled(ranks, has_versions=False), b"", notes())
    first = [int.from_bytes(blocks[at : at + 8], "little") for at in range(0, len(blocks), BLOCK)]

    assert first == sorted(first)
    assert len(blocks) == -(-1_000 // 170) * BLOCK


def test_the_same_record_twice_loses_nothing() -> None:
    ranks = {1: Rank(0, 7)}
    dead = notes()
    blocks = merged(filled(ranks, has_versions=False), b"", dead)
    again = merged(filled(ranks, has_versions=False), blocks, dead)

    assert again == blocks
    assert dead.next_dead(0, EVERYTHING) == EVERYTHING


@pytest.mark.parametrize("at", [0, 23, 2_000, 4_080, 4_095])
def test_a_changed_byte_is_noticed(at: int) -> None:
    block = bytearray(merged(filled({1: Rank(0, 7)}, has_versions=False), b"", notes()))
    block[at] ^= 1

    with pytest.raises(SpillDamaged, match="is not what was written"):
        find_spilled(block, hash_of(1), has_versions=False)
    with pytest.raises(SpillDamaged, match="is not what was written"):
        SpillMerge(filled({}, has_versions=False), notes()).feed(bytes(block))


def test_a_cut_block_is_noticed() -> None:
    with pytest.raises(SpillDamaged, match="has 100 bytes"):
        find_spilled(bytes(100), hash_of(1), has_versions=False)
    with pytest.raises(SpillDamaged, match="end inside a block"):
        SpillMerge(filled({}, has_versions=False), notes()).feed(bytes(100))
