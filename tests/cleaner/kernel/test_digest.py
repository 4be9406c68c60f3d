"""The digest of a verification uses XXH3."""

from __future__ import annotations

import os

import pytest
import xxhash

from cleaner.kernel.kernel import xxh3_128


@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param(range(4), id="up_to_3"),
        pytest.param(range(4, 9), id="up_to_8"),
        pytest.param(range(9, 17), id="up_to_16"),
        pytest.param(range(17, 129), id="up_to_128"),
        pytest.param(range(129, 241), id="up_to_240"),
        pytest.param(range(241, 1100), id="less_than_a_block_and_more"),
        pytest.param((2047, 2048, 2049, 100_003), id="many_blocks"),
    ],
)
def test_the_hash_is_xxh3(sizes: range | tuple[int, ...]) -> None:
    for size in sizes:
        data = os.urandom(size)
        assert xxh3_128(data) == xxhash.xxh3_128_intdigest(data), data.hex()
        for seed in (1, (1 << 64) - 1, int.from_bytes(os.urandom(8), "big")):
            expected = xxhash.xxh3_128_intdigest(data, seed=seed)
            assert xxh3_128(data, seed) == expected, (data.hex(), seed)
