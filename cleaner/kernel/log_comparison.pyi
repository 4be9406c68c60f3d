"""Compares two copies of a log: the last value of each key, or all records. The copies may be cleaned at
different times.

A table has one entry for each key (or for each offset) with the newest record of each side. It holds
the keys of one range of key hashes; when it is full, the range is halved, and the rest needs another
reading. Without keys the range is one of offsets, and the table ends it where it is full.
"""

from collections.abc import Iterable

from typing_extensions import Buffer

from cleaner.rules.log_comparison import Comparison
from cleaner.rules.step import ReadStep

class LogComparison:
    """The table. One thread at a time."""

    def __init__(
        self,
        hash_key: bytes,
        *,
        by_key: bool,
        memory_bytes: int,
        listed_max: int,
        decompressed_bytes_max: int,
    ) -> None:
        """
        Args:
            hash_key: a secret of 16 bytes, so that clients cannot craft two keys that count as one.
            by_key: compare the last record of each key; else every record.
            memory_bytes: of the table, 64 for each entry.
            listed_max: the most differences to list.

        Raises:
            ValueError: `hash_key` has another size, or the memory is for fewer than 16 entries.
        """

    def begin(self, first_hash: int = 0) -> None:
        """Empty the table, for the keys whose hash is not below `first_hash`."""

    def feed(
        self,
        chunk: Buffer,
        *,
        side: int,
        first_offset: int,
        aborted: Iterable[tuple[int, int]] = (),
    ) -> ReadStep:
        """Take the whole batches of a chunk. Releases the GIL, except where a codec needs it.

        Args:
            side: 0 or 1. The chunks of a side come in the order of their offsets.
            first_offset: records below do not count.
            aborted: producer id and first offset of each transaction whose records do not count, from
                there to the producer's ABORT, as Fetch gives them for this chunk.

        Raises:
            CorruptBatch, DecompressionTooLarge: a batch is not sound.
        """

    def compare(self, *, start_offset: int, end_offset: int) -> Comparison:
        """Returns how the sides differ in [start_offset, end_offset)."""

    def close(self) -> None:
        """Give back the memory. `feed` and `compare` then raise."""

    @property
    def next_offset(self) -> int:
        """The offset after the last batch that `feed` took; 0 before the first."""

    @property
    def last_hash(self) -> int:
        """The largest hash of the keys in the table's range."""

    @property
    def has_all_keys(self) -> bool:
        """Whether the range reaches up to the largest hash there is."""

    @property
    def limit_offset(self) -> int:
        """Without keys: records at or above do not count, because there was no room."""

    def __len__(self) -> int:
        """Returns the number of entries."""
