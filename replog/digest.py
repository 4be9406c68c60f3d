"""The digest of a set of rows: the sum of their hashes, so that a machine can maintain it.

    digest({rows}) = sum of XXH3-128(key size: uint32 | key | value) over all rows, modulo 2^128

A change of one row is one subtraction and one addition. The order of the rows does not matter.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

import xxhash

from replog.machine import Row

DIGEST_BYTES = 16
_MODULUS = 1 << 128
_KEY_SIZE = struct.Struct(">I")


def row_digest(key: bytes, value: bytes) -> int:
    """Returns the digest of one row."""
    return xxhash.xxh3_128_intdigest(_KEY_SIZE.pack(len(key)) + key + value)


def replaced(digest: int, before: int, after: int) -> int:
    """Returns the digest of a set after a row with digest `before` was replaced by one with `after`.

    0 stands for no row.
    """
    return (digest - before + after) % _MODULUS


def set_digest(rows: Iterable[Row]) -> int:
    """Returns the digest of these rows."""
    return sum(row_digest(key, value) for key, value in rows) % _MODULUS
