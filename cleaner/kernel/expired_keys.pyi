"""Collects the expired values of a log, and drops those that have a later one; compiled, without GIL.

    keys = ExpiredKeys(...)
    keys.begin()
    keys.collect_between(start, end)
    keys.collect(chunk) ...             candidates, in offset order, until `is_full`
    keys.compare_keys(block) ...        drop the candidates that a record of these outranks
    keys.compare(chunk) ...             the same, from the records themselves
    keys.write_tombstones(...)          of the candidates that are left; append them, then
    keys.appended()                     or, if they were not appended, keys.retract()

A key is compared by its 128-bit hash under the log directory's secret. Records of aborted transactions
count nowhere. Memory is bounded by `keys_max` and `key_bytes_max`: about 72 bytes a candidate, and its
key.
"""

from collections.abc import Iterable

from typing_extensions import Buffer

from cleaner.rules.step import Expired, ReadStep, Tombstones
from storage.formats.compaction_strategy import CompactionStrategy
from storage.formats.compaction_ttl import CompactionTtl

class ExpiredKeys:
    """The candidates of one sweep. For one thread at a time."""

    def __init__(
        self,
        hash_key: bytes,
        *,
        now_ms: int,
        start_offset: int,
        stable_offset: int,
        ttl: CompactionTtl,
        strategy: CompactionStrategy,
        aborted: Iterable[tuple[int, int, int]],
        decompressed_bytes_max: int,
        keys_max: int,
        key_bytes_max: int,
    ) -> None:
        """
        Args:
            now_ms: values that expire up to this wall time are expired.
            start_offset: records below it do not count.
            stable_offset: values at or above it are not collected. Records of transactions there are
                undecided: a candidate that one of them outranks is deferred, not dropped. So is one that
                only a tombstone below it outranks, by its version: when that goes, the value is back.
            aborted: producer id, first offset and marker's offset of each aborted transaction.
            decompressed_bytes_max: the maximum size of one batch's records after decompression.
            keys_max, key_bytes_max: the candidates at a time, and the bytes of their keys. One candidate
                always fits.

        Raises:
            ValueError: the hash key does not have 16 bytes.
        """

    def begin(self) -> None:
        """Forget all candidates."""

    def collect_between(self, from_offset: int, end_offset: int) -> None:
        """Collect only values in [from_offset, end_offset) from now on."""

    def collect(self, chunk: Buffer, *, position: int = 0) -> ReadStep:
        """Collect the expired values in the complete batches of `chunk`, which begins at a batch.

        Of several values of a key the one that outranks the others is a candidate. If `is_full` is set
        afterwards, some values are left: use the candidates, call `begin`, and give it the same chunk
        once more.

        Args:
            position: where `chunk` begins in its segment; for error messages only.

        Raises:
            CorruptBatch: a batch's length, CRC, header or records are damaged.
            DecompressionTooLarge: its records inflate beyond `decompressed_bytes_max`.
        """

    def take_least_later_ms(self) -> int:
        """Returns when the first of the values expires that were collected since the last call and had
        not expired; the largest int64 if there is none."""

    def compare(
        self, chunk: Buffer, *, position: int = 0, decompressed_bytes_max: int | None = None
    ) -> ReadStep:
        """Drop the candidates that a record in `chunk` outranks. Args and errors as for `collect`.

        Args:
            decompressed_bytes_max: a smaller bound for this call.
        """

    def compare_keys(self, block: Buffer, *, base_offset: int) -> None:
        """Drop the candidates that a record outranks of which `block` of a key sidecar has an entry.

        Args:
            base_offset: of the sidecar's segment.

        Raises:
            KeysDiffer: the block's counts do not match its size.
        """

    def note_compared(self, end_offset: int) -> None:
        """Raise `compared_end` to an offset."""

    def deferred_offsets(self) -> list[int]:
        """Returns the offsets of the candidates that were deferred or are left, in their order."""

    def write_tombstones(self, *, now_ms: int, count_max: int, bytes_max: int) -> Tombstones | None:
        """Write tombstones of the next candidates that are left; None if there is none.

        They have the time `now_ms`; where timestamps are versions, those of the values.
        """

    def written_expired(self) -> list[Expired]:
        """Returns the values of the tombstones that were written last."""

    def drop_below(self, start_offset: int) -> None:
        """Drop the candidates of the tombstones that were written last whose values lie below an
        offset."""

    def appended(self) -> None:
        """Note that the tombstones that were written last are in the log."""

    def retract(self) -> None:
        """Note that they are not: the next call of `write_tombstones` begins with the same values."""

    @property
    def candidates_left(self) -> int: ...
    @property
    def least_offset(self) -> int:
        """The least offset of a candidate that is left; the largest int64 if there is none."""

    @property
    def is_full(self) -> bool: ...
    @property
    def collected_end(self) -> int:
        """The end of the batches that were given to `collect`."""

    @property
    def expired(self) -> int:
        """The expired values that were collected so far, also those that have a later one."""

    @property
    def unreadable(self) -> int:
        """The values so far whose header was no time to live."""

    @property
    def compared_end(self) -> int:
        """The end of the batches that were given to `compare`."""

    @property
    def is_stale(self) -> bool:
        """Whether a value has been dropped whose tombstone was written last."""
