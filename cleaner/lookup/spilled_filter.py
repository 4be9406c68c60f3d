"""Copies the last records of a log whose keys do not fit into memory.

chunk -> hashes of its keys -> their last records, of memory and of the disk -> a map of these alone
      -> the filter by this map
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from cleaner.kernel.kernel import KeyIndexer, LatestFilter, OffsetMap, entry_hashes
from cleaner.pacing.settings import MAP_ENTRY_BYTES, VERSION_BYTES
from cleaner.rules.latest import Rank
from cleaner.rules.step import LatestStep
from protocol.wire.numbers import OFFSET_MAX, Offset
from storage.formats.compaction_strategy import CompactionStrategy

SLOTS_MIN = 2_200
"""So that there is room for what collides."""


class SpilledFilter:
    """Does what `LatestFilter` does, with the same chunks."""

    __slots__ = (
        "_codec_levels", "_decompressed_bytes_max", "_hash_key", "_rank_of", "_strategy",
        "_with_tombstones", "next_offset",
    )  # fmt: skip

    def __init__(
        self,
        rank_of: Callable[[bytes], Rank | None],
        *,
        hash_key: bytes,
        strategy: CompactionStrategy,
        start_offset: Offset,
        decompressed_bytes_max: int,
        codec_levels: tuple[int | None, ...],
        with_tombstones: bool,
    ) -> None:
        """
        Args:
            rank_of: returns the rank of a key's last record by the hash of the key.
            The rest: as for `LatestFilter`.
        """
        # Constant after construction.
        self._rank_of = rank_of
        self._hash_key = hash_key
        self._strategy = strategy
        self._decompressed_bytes_max = decompressed_bytes_max
        self._codec_levels = codec_levels
        self._with_tombstones = with_tombstones
        # State.
        self.next_offset: int = start_offset

    def feed(
        self,
        chunk: bytes | bytearray,
        *,
        end_offset: int,
        output_bytes_max: int,
        whole_first_batch: bool,
        position: int = 0,
    ) -> LatestStep:
        """See `LatestFilter.feed`. Raises SpillDamaged and DiskError besides."""
        chosen = LatestFilter(
            self._map_of(self._hashes_in(chunk, position)),
            start_offset=self.next_offset,
            decompressed_bytes_max=self._decompressed_bytes_max,
            codec_levels=self._codec_levels,
            with_tombstones=self._with_tombstones,
        )
        step = chosen.feed(
            chunk,
            end_offset=end_offset,
            output_bytes_max=output_bytes_max,
            whole_first_batch=whole_first_batch,
            position=position,
        )
        self.next_offset = chosen.next_offset
        return step

    def _hashes_in(self, chunk: bytes | bytearray, position: int) -> set[bytes]:
        """Returns the hashes of the keys in the whole batches of a chunk."""
        base_offset = int.from_bytes(chunk[:8], "big")
        indexer = KeyIndexer(
            self._hash_key,
            base_offset=base_offset,
            decompressed_bytes_max=self._decompressed_bytes_max,
            strategy=self._strategy,
        )
        block = indexer.feed(chunk, position=position).block
        if block is None:
            return set()
        everything = {"start_offset": 0, "end_offset": OFFSET_MAX}
        return {*entry_hashes(block, base_offset=base_offset, **everything)}

    def _map_of(self, hashes: Iterable[bytes]) -> OffsetMap:
        ranks = {each: rank for each in hashes if (rank := self._rank_of(each)) is not None}
        slot_bytes = MAP_ENTRY_BYTES + VERSION_BYTES * self._strategy.has_versions
        found = OffsetMap(
            (2 * len(ranks) + SLOTS_MIN) * slot_bytes,
            self._hash_key,
            has_versions=self._strategy.has_versions,
        )
        for hashed, rank in ranks.items():
            found.put_rank(hashed, rank)
        return found
