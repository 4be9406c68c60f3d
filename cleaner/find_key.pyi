"""Finds the records of one key in the segments of a log: compiled, without the GIL.

    finder = KeyFinder(key, decompressed_bytes_max=..., hits_max=...)
    for each segment, in order:
        finder.feed(chunk) ...          chunks of at least 1 MiB
    finder.hits                         the last `hits_max` of them, by offset

Whatever number of records the key has, memory is bounded. Markers are read on the way, so that a hit
of a transaction is known to be committed or aborted, where its marker is still there.
"""

from typing_extensions import Buffer

from cleaner.step import KeyHit, ReadStep

class KeyFinder:
    """Follows one key through a log. One thread at a time."""

    def __init__(self, key: bytes, *, decompressed_bytes_max: int, hits_max: int) -> None:
        """
        Args:
            decompressed_bytes_max: the most that one batch's records may inflate to.
            hits_max: how many of the last hits are kept.

        Raises:
            ValueError: `hits_max` is not positive.
        """

    def feed(self, chunk: Buffer, *, position: int = 0) -> ReadStep:
        """Look through the whole batches of `chunk`, which begins at a batch.

        Args:
            position: where `chunk` begins in its segment; for error messages only.

        Raises:
            CorruptBatch: a batch's length, CRC, header or records are damaged.
            DecompressionTooLarge: its records inflate beyond `decompressed_bytes_max`.
        """

    @property
    def key(self) -> bytes: ...
    @property
    def count(self) -> int:
        """How many records of the key were met."""

    @property
    def hits(self) -> list[KeyHit]:
        """The last of them, in offset order."""
