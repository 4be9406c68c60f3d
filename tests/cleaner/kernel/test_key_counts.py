"""The table of keys: how many records each has, in 40 bytes a key.

properties/test_key_analysis.py compares it with plain Python over whole logs.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from random import Random

import pytest

from cleaner.kernel.key_counts import SLOT_BYTES, KeyCounts
from cleaner.keys.counts import AGES, KeyTally, classes_of
from cleaner.rules.step import KeysDiffer
from tests.harness.key_model import count_class

PLENTY = 1 << 20
FOREVER = 1 << 62


def hash_of(number: int) -> bytes:
    """Returns a hash; those of numbers are spread over the hash space."""
    return Random(number).randbytes(16)


def block_of(
    entries: Iterable[tuple[int, int, int, bool]],
    rows: Sequence[tuple[int, int, int, int, int]] = (),
) -> bytes:
    """Returns a key block.

    Args:
        entries: key, offset, size and whether it is a tombstone.
        rows: first offset, last offset, producer id, kind and flags of special batches.
    """
    body = b"".join(
        hash_of(key) + struct.pack(">II", offset | is_tombstone << 31, size)
        for key, offset, size, is_tombstone in entries
    )
    special = b"".join(
        struct.pack(">IIqhBBI", first, last, producer, 0, kind, flags, 0)
        for first, last, producer, kind, flags in rows
    )
    head = struct.pack(">IIII", 100, len(rows), len(body) // 24, 0)
    return head + special + body + bytes(8)


def counts_over(
    memory_bytes: int = PLENTY, *, start_offset: int = 0, end_offset: int = FOREVER
) -> KeyCounts:
    return KeyCounts(memory_bytes, start_offset=start_offset, end_offset=end_offset)


def test_a_slot_has_forty_bytes() -> None:
    assert SLOT_BYTES == 40


def test_the_last_record_decides_whether_a_key_is_live() -> None:
    counts = counts_over()

    step = counts.count(
        block_of([(1, 0, 10, False), (2, 1, 20, False), (1, 2, 5, True), (3, 3, 7, False)]),
        base_offset=100,
    )
    tally = counts.tally()

    assert (step.records, step.record_bytes, step.tombstones, step.is_full) == (4, 42, 1, False)
    assert (tally.keys, tally.live, tally.live_bytes) == (3, 2, 27)
    hottest = counts.hottest(2)
    assert [(each.records, each.record_bytes, each.last_offset) for each in hottest] == [
        (2, 15, 102),
        (1, 20, 101),
    ]
    assert hottest[0].key_hash == hash_of(1)
    assert [each.is_deleted for each in hottest] == [True, False]


def test_the_age_is_that_of_the_first_record_and_what_was_live_at_age_nought_is_known() -> None:
    counts = counts_over()
    counts.count(block_of([(1, 0, 1, False), (2, 1, 1, False), (2, 2, 1, True)]), base_offset=0)
    counts.count(
        block_of([(1, 0, 1, True), (2, 1, 1, False), (3, 2, 1, False)]), base_offset=9, age=5
    )
    counts.count(block_of([(3, 0, 1, False), (4, 1, 1, True)]), base_offset=20, age=127)

    tally = counts.tally()

    assert {age: keys for age, keys in enumerate(tally.by_age) if keys} == {0: 2, 5: 1, 127: 1}
    assert (tally.live, tally.was_live) == (2, 1)


def test_records_outside_of_the_bounds_count_for_their_bytes_only() -> None:
    counts = counts_over(start_offset=11, end_offset=13)

    step = counts.count(block_of([(key, key, 10, False) for key in range(5)]), base_offset=10)

    assert (step.records, step.all_bytes) == (2, 50)
    assert counts.size == 2


def test_batches_of_aborted_and_open_transactions_count_for_no_key() -> None:
    left_out = [(8, 2, 6, False), (7, 0, 3, True)]
    counts = KeyCounts(PLENTY, start_offset=0, end_offset=FOREVER, left_out=left_out)
    transactional = 1
    rows = [
        (0, 1, 7, 1, transactional),
        (2, 2, 8, 1, transactional),
        (3, 3, 7, 3, transactional | 2),
        (4, 4, 7, 1, transactional),
        (6, 6, 8, 1, transactional),
    ]

    step = counts.count(
        block_of([(offset, offset, 1, False) for offset in (0, 1, 2, 4, 5, 6)], rows), base_offset=0
    )

    # Batches from the end of a range on are of a later transaction; offset 5 is plain data.
    assert (step.aborted, step.undecided, step.records) == (2, 1, 3)


def test_parts_divide_the_keys_and_their_sums_are_those_of_the_whole() -> None:
    block = block_of([(number % 50, number, number, False) for number in range(200)])
    whole = counts_over()
    whole.count(block, base_offset=0)
    counts, total, hottest = counts_over(), KeyTally(), []
    for part in range(7):
        counts.clear(part=part, parts=7)
        counts.count(block, base_offset=0)
        total = total.plus(counts.tally())
        hottest += counts.hottest(10)

    assert total == whole.tally()
    assert sorted(hottest, reverse=True)[:10] == whole.hottest(10)


def test_a_full_table_says_so_and_takes_a_smaller_part() -> None:
    counts = counts_over(16 * SLOT_BYTES)
    block = block_of([(number, number, 1, False) for number in range(100)])

    assert counts.count(block, base_offset=0).is_full
    assert counts.size == counts.capacity == 7
    counts.clear(part=3, parts=40)
    assert not counts.count(block, base_offset=0).is_full
    assert counts.size <= 7


def test_a_cleared_table_knows_nothing_of_the_keys_before() -> None:
    counts = counts_over()
    counts.count(block_of([(1, 0, 10, False)] * 3), base_offset=0)

    counts.clear(5)
    counts.count(block_of([(1, 0, 10, True)]), base_offset=0)

    assert counts.hottest(1)[0][:2] == (1, 10)
    assert counts.capacity == 5


@pytest.mark.parametrize("top", [1, 2, 3, 17, 1000])
def test_the_hottest_keys_are_those_of_a_sorted_list(top: int) -> None:
    random = Random(top)
    entries = [
        (random.randrange(300), offset, random.randrange(4), random.random() < 0.2)
        for offset in range(2000)
    ]
    counts = counts_over()
    counts.count(block_of(entries), base_offset=0)
    hot: dict[int, list[int]] = {}
    for key, offset, size, is_tombstone in entries:
        records, total, *_ = hot.get(key, [0, 0])
        hot[key] = [records + 1, total + size, offset, is_tombstone]

    expected = sorted(((*hot[key][:3], hash_of(key), hot[key][3]) for key in hot), reverse=True)
    assert counts.hottest(top) == expected[:top]


def test_numbers_of_records_are_in_the_classes_of_the_rule() -> None:
    numbers = [1, 2, 31, 32, 33, 34, 35, 64, 65, 68, 69, 100, 129, 137]
    counts = counts_over()
    entries = [(number, 0, 1, False) for number in numbers for _ in range(number)]
    counts.count(block_of(entries), base_offset=0)
    expected: dict[int, list[int]] = {}
    for number in numbers:
        keys, records = expected.setdefault(count_class(number), [0, 0])
        expected[count_class(number)] = [keys + 1, records + number]

    found = classes_of(counts.tally().classes)

    assert [tuple(each) for each in found] == [(each, *expected[each]) for each in sorted(expected)]


def test_what_is_not_possible_is_refused() -> None:
    counts = counts_over()
    with pytest.raises(ValueError, match="fewer than 16 slots"):
        counts_over(639)
    with pytest.raises(ValueError, match="load factor"):
        KeyCounts(PLENTY, 0.99, start_offset=0, end_offset=1)
    with pytest.raises(ValueError, match="no part 3 of 3"):
        counts.clear(part=3, parts=3)
    with pytest.raises(ValueError, match="age 128"):
        counts.count(block_of([]), base_offset=0, age=AGES)
    with pytest.raises(ValueError, match="not a number of keys"):
        counts.hottest(0)
    with pytest.raises(ValueError, match="no versions"):
        KeyCounts(PLENTY, has_versions=True, start_offset=0, end_offset=1).count(
            block_of([(1, 0, 1, False)]), base_offset=0
        )
    with pytest.raises(KeysDiffer):
        counts.count(block_of([(1, 0, 1, False)])[:-1], base_offset=0)


def test_damaged_blocks_are_refused_or_counted_within_the_table() -> None:
    random = Random(1)
    rows = [(0, 3, 7, 1, 1), (4, 4, 7, 3, 3), (5, 9, 8, 1, 1)]
    block = block_of([(offset, offset, offset, False) for offset in range(12)], rows)
    for _ in range(500):
        damaged = bytearray(block)
        for _ in range(random.randint(1, 4)):
            damaged[random.randrange(len(damaged))] = random.randrange(256)
        counts = KeyCounts(
            20 * SLOT_BYTES, start_offset=0, end_offset=20, left_out=[(7, 0, 4, True)]
        )
        try:
            counts.count(bytes(damaged), base_offset=random.choice([0, 5, (1 << 63) - 1]))
        except KeysDiffer:
            continue
        assert counts.size <= counts.capacity
        assert counts.tally().keys == len(counts.hottest(100)) == counts.size
