"""The digest of a file's bytes, as a text that says how it was made: `xxh3:<32 hexadecimal digits>`.

xxh3      XXH3-128, about 20 GB/s a core: finds every damage by accident. A person who can write to the
          disk can make another file with the same digest.
sha256    SHA-256, 0.4 GB/s a core, and four times that where the processor has instructions for it: no
          other file with the same digest can be made.
"""

from __future__ import annotations

import hashlib
from typing import Protocol

import xxhash

from storage.files.files import Buffer

XXH3 = "xxh3"
SHA256 = "sha256"
DIGEST_KINDS = (XXH3, SHA256)


class _Hash(Protocol):
    def update(self, data: Buffer, /) -> None: ...
    def hexdigest(self) -> str: ...


class ContentDigest:
    """Takes the bytes of a file, front to back."""

    __slots__ = ("_hash", "_kind")

    def __init__(self, kind: str) -> None:
        """`kind` is one of `DIGEST_KINDS`. Raises ValueError for any other."""
        if kind not in DIGEST_KINDS:
            raise ValueError(f"{kind[:20]!r} is not a kind of digest: {', '.join(DIGEST_KINDS)}")
        self._kind = kind
        self._hash: _Hash = xxhash.xxh3_128() if kind == XXH3 else hashlib.sha256()

    def update(self, data: Buffer) -> None:
        """Take the next bytes."""
        self._hash.update(data)

    def __str__(self) -> str:
        """Returns the digest of the bytes so far."""
        return f"{self._kind}:{self._hash.hexdigest()}"


def kind_of_digest(text: str) -> str:
    """Returns the kind of a digest, which may be one that only a later release knows."""
    return text.partition(":")[0]
