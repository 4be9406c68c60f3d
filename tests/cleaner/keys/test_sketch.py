"""The estimate of a sketch lies within its stated error."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner.keys.sketch import (
    RANK_MAX,
    REGISTERS,
    STANDARD_ERROR,
    add_key,
    distinct,
    new_sketch,
    union,
)

HASHES = st.lists(st.binary(min_size=16, max_size=16), max_size=30)


def sketch_of(hashes: list[bytes]) -> bytearray:
    registers = new_sketch()
    for each in hashes:
        add_key(registers, each)
    return registers


def test_an_empty_sketch_has_no_key() -> None:
    assert distinct(new_sketch()) == 0


@pytest.mark.parametrize("count", [1, 10, 100, 1000, 5000, 30_000])
def test_an_estimate_lies_within_four_times_its_error(count: int) -> None:
    random = Random(count)
    registers = sketch_of([random.randbytes(16) for _ in range(count)])

    assert abs(distinct(registers) / count - 1) < 4 * STANDARD_ERROR


def test_the_error_of_many_sketches_is_the_stated_one() -> None:
    """Registers are drawn instead of keys, as those of very many keys would be."""
    random, keys, errors = Random(5), 1_000_000, []
    for _ in range(60):
        registers = new_sketch()
        for number in range(REGISTERS):
            # The largest of n ranks, each k with probability 2^-k.
            share = random.random() ** (REGISTERS / keys)
            while 1 - 2.0 ** -registers[number] < share:
                registers[number] += 1
        errors.append(distinct(registers) / keys - 1)

    mean = sum(errors) / len(errors)
    spread = (sum(error**2 for error in errors) / len(errors)) ** 0.5
    assert abs(mean) < STANDARD_ERROR / 2
    assert 0.7 < spread / STANDARD_ERROR < 1.3


def test_registers_that_are_full_give_the_largest_estimate() -> None:
    assert distinct(bytes([RANK_MAX]) * REGISTERS) == float("inf")
    assert distinct(bytes([RANK_MAX - 1]) * REGISTERS) > 2.0**64


@given(one=HASHES, other=HASHES)
def test_a_union_is_the_sketch_of_the_keys_of_both_in_any_order(
    one: list[bytes], other: list[bytes]
) -> None:
    both = sketch_of(one + other)

    assert union(sketch_of(one), sketch_of(other)) == both
    assert union(sketch_of(other), sketch_of(one)) == both
    assert sketch_of((other + one)[::-1] + one) == both
