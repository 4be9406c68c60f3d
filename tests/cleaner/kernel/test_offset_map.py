"""The offset map: the last offset of each key, in 24 bytes per key."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterable
from itertools import count, islice, pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nacl.bindings import crypto_shorthash_siphashx24

from cleaner.kernel.kernel import SLOT_BYTES, OffsetMap, siphash128
from cleaner.rules.step import MapTally

HASH_KEY = bytes(range(16))
SPILL_SLOTS = 1024
"""Slots after the last home slot, `KP_SPILL_MAX` in offset_slots.h."""


def memory_bytes_for(keys: int, *, load_factor: float = 0.9) -> int:
    """Returns the memory of a map for `keys` keys: 27 bytes per key and 24 KiB at the default load."""
    homes = math.ceil(keys / load_factor) + 1
    # Half of a small map is spill.
    return (homes + min(homes, SPILL_SLOTS)) * SLOT_BYTES


@pytest.mark.parametrize(
    ("size", "published"),
    [
        pytest.param(0, "a3817f04ba25a8e66df67214c7550293", id="empty"),
        pytest.param(1, "da87c1d86b99af44347659119b22fc45", id="one_byte"),
        pytest.param(2, "8177228da4a45dc7fca38bdef60affe4", id="two_bytes"),
    ],
)
def test_siphash_gives_its_authors_test_vectors(size: int, published: str) -> None:
    """Source: vectors.h of the reference code, `vectors_sip128`."""
    assert siphash128(HASH_KEY, bytes(range(size))).hex() == published


def test_siphash_is_libsodiums_for_data_of_every_length() -> None:
    for size in range(1100):
        hash_key, data = os.urandom(16), os.urandom(size)
        expected = crypto_shorthash_siphashx24(data, hash_key)
        assert siphash128(hash_key, data) == expected, (hash_key.hex(), data.hex())


def test_a_hash_key_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match="16 bytes, not 15"):
        siphash128(bytes(15), b"")
    with pytest.raises(ValueError, match="16 bytes, not 17"):
        OffsetMap(1 << 16, bytes(17))


puts = st.lists(st.tuples(st.binary(max_size=3), st.integers(0, 2**63 - 1)), max_size=60)


@settings(deadline=None)
@given(puts, st.sampled_from((None, 60, 100)))
def test_map_is_a_dict_of_largest_offsets(
    entries: list[tuple[bytes, int]], keys_max: int | None
) -> None:
    offset_map, model = OffsetMap(1 << 12, HASH_KEY), dict[bytes, int]()
    offset_map.clear(keys_max)

    for key, offset in entries:
        offset_map.put(key, offset)
        model[key] = max(offset, model.get(key, 0))

    assert {key: offset_map.get(key) for key in model} == model
    assert offset_map.size == len(offset_map) == len(model)
    assert offset_map.get(b"never put") is None


@pytest.mark.parametrize("keys", [1, 20, 1000, 30_000])
@pytest.mark.parametrize("load_factor", [0.5, 0.9, 0.95])
def test_map_takes_its_capacity_and_no_key_more(keys: int, load_factor: float) -> None:
    memory = max(memory_bytes_for(keys, load_factor=load_factor), 16 * SLOT_BYTES)
    offset_map = OffsetMap(memory, HASH_KEY, load_factor)
    assert offset_map.capacity >= keys
    names = [b"%d" % number for number in range(offset_map.capacity)]

    for offset, name in enumerate(names):
        offset_map.put(name, offset)

    with pytest.raises(OverflowError, match="full"):
        offset_map.put(b"one more", 0)
    offset_map.put(names[0], 2**40)
    assert offset_map.get(names[0]) == 2**40
    assert all(offset_map.get(name) == offset for offset, name in enumerate(names[1:], 1))


@pytest.mark.parametrize("load_factor", [0.0, -0.1, 0.96, float("nan")])
def test_a_load_factor_that_leaves_no_holes_is_refused(load_factor: float) -> None:
    with pytest.raises(ValueError, match="load factor"):
        OffsetMap(1 << 16, HASH_KEY, load_factor)


def test_a_map_too_small_for_sixteen_slots_is_refused() -> None:
    with pytest.raises(ValueError, match="fewer than 16 slots"):
        OffsetMap(383, HASH_KEY)


def test_a_negative_offset_is_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        OffsetMap(1 << 12, HASH_KEY).put(b"k", -1)


def test_clear_forgets_keys() -> None:
    offset_map = OffsetMap(1 << 12, HASH_KEY)
    offset_map.put(b"k", 3)

    offset_map.clear()

    assert (offset_map.get(b"k"), offset_map.size) == (None, 0)


@settings(deadline=None)
@given(st.sets(st.binary(max_size=3), max_size=60), st.integers(1, 2**40))
def test_each_key_is_of_exactly_one_part(keys: set[bytes], parts: int) -> None:
    offset_map = OffsetMap(1 << 12, HASH_KEY)

    for key in keys:
        part = part_of(key, parts)
        offset_map.clear(part=part, parts=parts)
        offset_map.put(key, 7)
        assert offset_map.get(key) == 7
        if parts > 1:
            offset_map.clear(part=(part + 1) % parts, parts=parts)
            assert offset_map.get(key) is None
            with pytest.raises(ValueError, match="not in part"):
                offset_map.put(key, 7)


def part_of(key: bytes, parts: int) -> int:
    """Returns floor(low word of the hash / 2^64 * parts)."""
    return int.from_bytes(siphash128(HASH_KEY, key)[:8], "little") * parts >> 64


@pytest.mark.parametrize("parts", [1, 2, 3, 40])
def test_a_part_fills_the_map_as_evenly_as_all_keys_do(parts: int) -> None:
    """The home slot depends on the fraction after the point, so a part is spread over all slots."""
    offset_map = OffsetMap(memory_bytes_for(2_000), HASH_KEY)
    names = (b"%d" % number for number in count())
    for part in {0, parts // 2, parts - 1}:
        offset_map.clear(part=part, parts=parts)
        own = [name for name in islice(names, 3_000 * parts) if part_of(name, parts) == part]
        for offset, name in enumerate(own[: offset_map.capacity]):
            offset_map.put(name, offset)
        assert offset_map.size == offset_map.capacity
        assert all(
            offset_map.get(name) == offset for offset, name in enumerate(own[: offset_map.capacity])
        )


@pytest.mark.parametrize(("part", "parts"), [(0, 0), (1, 1), (5, 4)])
def test_a_part_that_is_none_is_refused(part: int, parts: int) -> None:
    with pytest.raises(ValueError, match="there is no part"):
        OffsetMap(1 << 12, HASH_KEY).clear(part=part, parts=parts)


def test_capacity_is_bounded_by_the_keys_to_come() -> None:
    offset_map = OffsetMap(1 << 20, HASH_KEY)
    usual = offset_map.capacity

    offset_map.clear(100)
    assert offset_map.capacity == 100
    offset_map.clear(10**9)
    assert offset_map.capacity == usual


def test_map_takes_at_most_27_bytes_a_key_and_never_more_than_its_bound() -> None:
    offset_map = OffsetMap(128 << 20, HASH_KEY)

    assert offset_map.memory_bytes <= 128 << 20
    assert offset_map.memory_bytes / offset_map.capacity <= 27
    assert memory_bytes_for(1_000_000) / 1_000_000 <= 27


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_is_taken_by_touch_and_given_back_by_clear() -> None:
    before = resident_bytes()
    offset_map = OffsetMap(256 << 20, HASH_KEY)
    offset_map.clear(50_000)
    assert resident_bytes() - before < 1 << 20

    offset_map.clear()
    for number in range(20_000):
        offset_map.put(b"%d" % number, number)
    assert resident_bytes() - before > 64 << 20

    offset_map.clear()
    assert resident_bytes() - before < 4 << 20


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 2**40)), max_size=120),
    st.lists(st.integers(0, 2**40), max_size=5),
)
def test_the_slots_hold_what_was_counted_as_it_was_put(
    puts: list[tuple[int, int]], bounds: list[int]
) -> None:
    offset_map = OffsetMap(24 * 100, HASH_KEY)
    latest: dict[int, int] = {}

    for key, offset in puts:
        offset_map.put(b"%d" % key, offset)
        latest[key] = max(latest.get(key, 0), offset)

    assert offset_map.tally == tally_of(latest.values())
    edges = [0, *sorted(bounds), 2**63]
    assert offset_map.tally_slots(bounds) == tuple(
        tally_of(offset for offset in latest.values() if low <= offset < high)
        for low, high in pairwise(edges)
    )


def tally_of(offsets: Iterable[int]) -> MapTally:
    held = list(offsets)
    return MapTally(count=len(held), offset_sum=sum(held))


def test_a_cleared_map_counts_from_nothing() -> None:
    offset_map = OffsetMap(24 * 100, HASH_KEY)
    offset_map.put(b"a", 7)

    offset_map.clear()

    assert offset_map.tally == tally_of([])
    assert offset_map.tally_slots([]) == (tally_of([]),)
