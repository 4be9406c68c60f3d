"""Counts the records of each key of a log, from key sidecars; compiled, runs without the GIL.

    counts = KeyCounts(memory_bytes, ...)
    for each part of the hash space:
        counts.clear(part=..., parts=...)
        counts.count(block, base_offset=..., age=...) ...      all blocks, in offset order
        counts.tally(), counts.hottest(n)

Which record of a key is its last is the rule of `cleaner/rules/latest.py`. `tests/harness/key_model.py`
counts the same in plain Python.
"""

from collections.abc import Iterable

from typing_extensions import Buffer

from cleaner.keys.counts import BlockCounts, HotKey, KeyTally

SLOT_BYTES: int
"""Memory of one slot: what the offset map has (24 bytes), and 16 bytes of counts."""

VERSION_BYTES: int
"""What a slot takes in addition where records have versions."""

class KeyCounts:
    """A table with a slot for each key of one part of the hash space. For one thread at a time.

    Memory is committed as slots are touched, never more than `memory_bytes`, and released by `clear`.
    """

    def __init__(
        self,
        memory_bytes: int,
        load_factor: float = 0.9,
        *,
        has_versions: bool = False,
        start_offset: int,
        end_offset: int,
        left_out: Iterable[tuple[int, int, int, bool]] = (),
    ) -> None:
        """
        Args:
            has_versions: whether records have versions.
            start_offset, end_offset: records outside of [start_offset, end_offset) do not count.
            left_out: producer id, first offset, end offset and whether it was aborted, of each
                transaction that was aborted or has no outcome: its records count for no key.

        Raises:
            ValueError: fewer than 16 slots fit in `memory_bytes`, or `load_factor` is not in (0, 0.95].
            MemoryError: the address space cannot be mapped.
        """

    @property
    def capacity(self) -> int:
        """Maximum number of keys."""

    @property
    def size(self) -> int:
        """Number of keys so far."""

    def clear(self, keys_max: int | None = None, *, part: int = 0, parts: int = 1) -> None:
        """Forget all keys, and take those of one part from now on: see `OffsetMap.clear`.

        Raises:
            ValueError: there is no such part.
        """

    def count(self, block: Buffer, *, base_offset: int, age: int = 0) -> BlockCounts:
        """Count the entries of a block that are in the part. Blocks come in offset order.

        Args:
            block: a block of the sidecar of the segment at `base_offset`.
            age: of the keys whose first record is in it; below `AGES`. Blocks of age 0 come first.

        Raises:
            KeysDiffer: the block's counts do not match its size.
            ValueError: it has no versions, or there is no such age.
        """

    def tally(self) -> KeyTally:
        """Returns the sums over the keys of the part."""

    def hottest(self, count: int) -> list[HotKey]:
        """Returns the `count` hottest keys of the part, or all if there are fewer, the hottest first."""
