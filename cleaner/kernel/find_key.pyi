"""Finds the records of one key in the segments of a log; compiled, runs without the GIL.

    finder = KeyFinder(key, decompressed_bytes_max=..., hits_max=...)
    for each segment, in order:
        finder.feed(chunk) ...          chunks of at least 1 MiB
    finder.hits                         the last `hits_max` records, by offset

Memory is bounded, however many records the key has. Markers are read on the way, so that transactional
hits are known to be committed or aborted if their marker still exists.
"""

from typing_extensions import Buffer

from cleaner.rules.step import KeyHit, ReadStep
from storage.formats.compaction_strategy import CompactionStrategy
from storage.formats.compaction_ttl import CompactionTtl

class KeyFinder:
    """Collects the records of one key in a log. For one thread at a time."""

    def __init__(
        self,
        key: bytes,
        *,
        decompressed_bytes_max: int,
        hits_max: int,
        strategy: CompactionStrategy = ...,
        ttl: CompactionTtl = ...,
    ) -> None:
        """
        Args:
            decompressed_bytes_max: the maximum size of one batch's records after decompression.
            hits_max: how many hits are kept, the last ones.
            strategy: which versions they get.
            ttl: when values expire; by default none does.

        Raises:
            ValueError: `hits_max` is not positive.
        """

    def feed(self, chunk: Buffer, *, position: int = 0) -> ReadStep:
        """Search the complete batches of `chunk`, which begins at a batch.

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
        """Number of records of the key found so far."""

    @property
    def hits(self) -> list[KeyHit]:
        """The last records found, in offset order."""
