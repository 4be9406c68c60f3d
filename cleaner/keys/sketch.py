"""A sketch of distinct keys: HyperLogLog over the 128-bit hashes of the key sidecars. Pure.

    register = the first 11 bits of the hash's first half
    rank     = the number of zeros before the first one bit of its second half, and 1
    each register keeps the largest rank of its keys

The hash is secret and uniform (SipHash under the directory's key), so no client can choose keys that
distort a sketch. Two sketches are united by the larger of each pair of registers; the sketch of several
segments does not depend on their order, nor on how often a key is added.

`cleaner/kernel/key_sketch.pyx` adds whole blocks; this file is its specification.

Source: Flajolet, Fusy, Gandouet, Meunier, "HyperLogLog" (2007); Ertl, "New cardinality estimation
algorithms for HyperLogLog sketches" (2017), algorithm 6, which needs no table of corrections.
"""

from __future__ import annotations

import math
from collections import Counter

PRECISION = 11
REGISTERS = 1 << PRECISION
"""The bytes of a sketch."""

STANDARD_ERROR = 1.04 / math.sqrt(REGISTERS)
"""Of an estimate, as a share of it: 0.023."""

RANK_MAX = 65
"""The rank of a hash whose second half is 0."""


def new_sketch() -> bytearray:
    """Returns an empty sketch."""
    return bytearray(REGISTERS)


def add_key(registers: bytearray, key_hash: bytes) -> None:
    """Add a key by its hash."""
    low, high = (int.from_bytes(half, "little") for half in (key_hash[:8], key_hash[8:]))
    precision = len(registers).bit_length() - 1
    register, rank = low >> (64 - precision), 64 - high.bit_length() + 1
    registers[register] = max(registers[register], rank)


def union(one: bytes | bytearray, other: bytes | bytearray) -> bytearray:
    """Returns the sketch of the keys of both."""
    return bytearray(map(max, one, other))


def distinct(registers: bytes | bytearray) -> float:
    """Returns the estimated number of distinct keys in a sketch."""
    count, of_rank = len(registers), Counter(registers)
    total = count * _tau(1 - of_rank[RANK_MAX] / count)
    for rank in range(RANK_MAX - 1, 0, -1):
        total = (total + of_rank[rank]) / 2
    total += count * _sigma(of_rank[0] / count)
    return count * count / (2 * math.log(2) * total) if total else math.inf


def _sigma(share: float) -> float:
    """Returns the correction for registers that no key has reached; infinite if none was reached."""
    if share == 1:
        return math.inf
    weight, total, before = 1.0, share, -1.0
    while total != before:
        share *= share
        total, before = total + share * weight, total
        weight *= 2
    return total


def _tau(share: float) -> float:
    """Returns the correction for registers that have the largest rank."""
    if share in (0, 1):
        return 0.0
    weight, total, before = 1.0, 1 - share, -1.0
    while total != before:
        share = math.sqrt(share)
        weight /= 2
        total, before = total - (1 - share) ** 2 * weight, total
    return total / 3
