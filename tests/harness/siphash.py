"""SipHash-2-4-128 in plain Python, following its paper."""

from __future__ import annotations

_MASK = 2**64 - 1


def _rotate(word: int, bits: int) -> int:
    return (word << bits | word >> (64 - bits)) & _MASK


def _sip_round(v0: int, v1: int, v2: int, v3: int) -> tuple[int, int, int, int]:
    v0, v2 = (v0 + v1) & _MASK, (v2 + v3) & _MASK
    v1, v3 = _rotate(v1, 13) ^ v0, _rotate(v3, 16) ^ v2
    v0 = _rotate(v0, 32)
    v2, v0 = (v2 + v1) & _MASK, (v0 + v3) & _MASK
    v1, v3 = _rotate(v1, 17) ^ v2, _rotate(v3, 21) ^ v0
    return v0, v1, _rotate(v2, 32), v3


def siphash128_by_the_paper(hash_key: bytes, data: bytes) -> bytes:
    """Returns the hash of Aumasson and Bernstein's figure, with the changes of their 128-bit variant."""
    k0, k1 = int.from_bytes(hash_key[:8], "little"), int.from_bytes(hash_key[8:], "little")
    v0, v1 = k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D ^ 0xEE
    v2, v3 = k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573
    padded = data + bytes(7 - len(data) % 8) + bytes([len(data) % 256])
    for start in range(0, len(padded), 8):
        word = int.from_bytes(padded[start : start + 8], "little")
        v3 ^= word
        for _ in range(2):
            v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
        v0 ^= word
    halves = []
    v2 ^= 0xEE
    for _ in range(2):
        for _ in range(4):
            v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
        halves.append((v0 ^ v1 ^ v2 ^ v3).to_bytes(8, "little"))
        v1 ^= 0xDD
    return b"".join(halves)
