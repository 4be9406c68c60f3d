"""A key's partition by `view.partitioner` is the one that clients choose."""

from __future__ import annotations

import pytest

from server.lookup.partitioner import murmur2, partition_of


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_has_the_values_of_kafkas_own_test(key: bytes, hashed: int) -> None:
    # UtilsTest.java, testMurmur2
    assert murmur2(key) == hashed & 0xFFFFFFFF


def test_an_unknown_partitioner_and_an_empty_key_of_librdkafka_may_be_anywhere() -> None:
    assert partition_of("none", b"a", 8) is None
    assert partition_of("crc32", b"", 8) is None
    assert partition_of("murmur2", b"", 8) is not None
