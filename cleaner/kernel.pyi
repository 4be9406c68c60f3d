"""The per-record work of a cleaning pass, compiled and without the GIL.

A pass is two loops over chunks of segment files. Give each call at least 1 MiB:

    offset_map.clear()
    step = map_batches(chunk, offset_map, ...)      dirty section: key hash -> last offset
    step = transactions.walk(chunk)                 where it meets one: what became of each
    step = batch_filter.feed(chunk)                 whole log: which bytes go to the cleaned segment

Chunks may end anywhere: what a call did not consume goes in front of the next chunk.
A chunk must not be changed while a call reads it.

The rule is `cleaner/retain.py`; this is that rule, fast. Both functions raise

    CorruptBatch            a batch's length, CRC, header or records are damaged; the message has
                            its position in the segment and its base offset
    DecompressionTooLarge   its records inflate beyond `decompressed_bytes_max`

and after that the pass is over: the map's content and the filter's counts mean nothing any more.
"""

from collections.abc import Collection, Mapping

from typing_extensions import Buffer

from cleaner.retain import AbortedTransaction, Verdict
from cleaner.step import (
    FilterStep,
    GroupAccount,
    MapStep,
    MapTally,
    SegmentSummary,
    VerdictCount,
    WalkStep,
)

SLOT_BYTES: int
"""Memory of one slot: 16 bytes of key hash, 8 bytes of offset."""

def siphash128(hash_key: bytes, data: Buffer) -> bytes:
    """Return SipHash-2-4-128 of `data` under the 16-byte `hash_key`.

    Raises:
        ValueError: `hash_key` is not 16 bytes long.
    """

def xxh3_128(data: Buffer) -> int:
    """Return XXH3, 128 bits, seed 0, of `data`: the hash of the digests."""

class OffsetMap:
    """Hash of a key -> the largest offset at which the key was seen.

    One flat array of 24-byte slots, open addressing. Keys are known by a 128-bit hash under a
    secret key, so that nobody can craft two keys that delete each other. Memory is taken as slots
    are touched, never more than `memory_bytes`, and given back by `clear`. Owned by one worker;
    not safe to share between threads while a kernel call uses it.
    """

    def __init__(self, memory_bytes: int, hash_key: bytes, load_factor: float = 0.9) -> None:
        """
        Raises:
            ValueError: fewer than 16 slots fit in `memory_bytes`, `hash_key` is not 16 bytes long,
                or `load_factor` is not in (0, 0.95].
            MemoryError: the address space cannot be had.
        """

    @property
    def memory_bytes(self) -> int:
        """Size of the array: at most the `memory_bytes` given."""

    @property
    def capacity(self) -> int:
        """How many keys it takes at the load factor."""

    @property
    def size(self) -> int:
        """How many keys it holds."""

    @property
    def end_offset(self) -> int:
        """Every batch of the mapped range below this offset is in the map; 0 when cleared.

        `map_batches` moves it to the end of the last batch it took. The caller may move it over
        a gap between two segments (KAFKA-8764), and sets it to where an empty range begins.
        """

    @end_offset.setter
    def end_offset(self, end_offset: int) -> None: ...
    def clear(self, keys_max: int | None = None) -> None:
        """Forget all keys and give the memory back.

        Args:
            keys_max: an upper bound of the keys to come, such as the record count of the dirty
                section. The map then spreads over only as many slots as those keys need, which
                saves memory and cache misses; `capacity` becomes the lesser of both.
        """

    def get(self, key: Buffer) -> int | None:
        """Return the largest offset put for `key`, None if there is none."""

    def put(self, key: Buffer, offset: int) -> None:
        """Remember `offset` for `key` unless a larger one is known.

        Raises:
            ValueError: `offset` is negative.
            OverflowError: the key is new and the map is at its capacity.
        """

    @property
    def tally(self) -> MapTally:
        """How many offsets were put and not replaced by a later one, and their sum: kept while
        the map was filled."""

    def tally_slots(self, bounds: Collection[int]) -> tuple[MapTally, ...]:
        """Count what the slots hold now, all of them, by ranges of offsets.

        Args:
            bounds: b0 <= b1 <= ..., in any order. The first tally is of the offsets below b0, the
                next of [b0, b1), the last of those from the last bound on.
        """

    def __len__(self) -> int: ...

def map_batches(
    chunk: Buffer,
    offset_map: OffsetMap,
    *,
    start_offset: int,
    end_offset: int,
    decompressed_bytes_max: int,
    position: int = 0,
    transactions: Transactions | None = None,
) -> MapStep:
    """Put every keyed record of [start_offset, end_offset) into the map, batch by batch.

    Stops before a batch that the map may not hold whole, so `offset_map.end_offset` always is a
    batch's end. A batch that ends below `start_offset` is passed over; one
    that reaches past `end_offset` stops the mapping (MapStop.END). Control batches and aborted
    ones are passed over too: none of their records is ever in the map.

    Args:
        chunk: bytes of a segment that begin at a batch.
        position: where `chunk` begins in its segment; for error messages only.
        transactions: what became of the section's transactions. Without it the mapping stops at
            the first batch of one (MapStop.TRANSACTION).

    Raises:
        CorruptBatch, DecompressionTooLarge: see the module.
    """

class Transactions:
    """What became of the transactions in a section of a log, by its batches alone.

    Walk the section once, chunk by chunk, from its first transactional batch or from before that.
    One that was never walked holds that nothing was aborted.
    """

    def __init__(self, *, start_offset: int, end_offset: int, decompressed_bytes_max: int) -> None:
        """
        Args:
            start_offset: batches that end below it are passed over.
            end_offset: a batch that reaches past it ends the walk.
        """

    def walk(self, chunk: Buffer, *, position: int = 0) -> WalkStep:
        """Walk the whole batches of `chunk`, bytes of a segment that begin at a batch.

        Raises:
            CorruptBatch, DecompressionTooLarge: see the module.
        """

    @property
    def end_offset(self) -> int:
        """Where a pass over the section may end, so that nothing undecided lies below.

        The section's end or, if a transaction has no marker in it, the first such one's first
        batch. If the batch before that one was aborted, that batch instead: the last batch of a
        pass must stay, and what was aborted must not stay in a clean section.
        """

    @property
    def aborted(self) -> list[AbortedTransaction]:
        """The aborted transactions in the section, by producer, then by offset."""

class BatchFilter:
    """Decides, batch by batch, what of a log goes into the cleaned segments, and builds it."""

    def __init__(
        self,
        offset_map: OffsetMap,
        *,
        end_offset: int,
        tail_offset: int,
        now_ms: int,
        delete_retention_ms: int,
        decompressed_bytes_max: int,
        producer_last_offsets: Collection[int] = (),
        index_interval_bytes: int = 4096,
        segment_bytes_max: int = 2147483647,
        keeps_unkeyed: bool = False,
        producer_marker_epochs: Mapping[int, int] | None = None,
        transactions: Transactions | None = None,
        stamps_markers: bool = False,
        start_offset: int = 0,
        is_verified: bool = False,
    ) -> None:
        """
        Args:
            end_offset: where the map ends. Batches that reach past it are copied unlooked.
            tail_offset: last offset below the pass's upper bound (the least of last stable
                offset, active base and lag bound); -1 for none. The batch that ends there keeps
                its last record.
            producer_last_offsets: the last offset of each active producer's last data batch;
                such a batch stays as a header if none of its records does.
            index_interval_bytes: bytes of output between two index entries, as Kafka's.
            segment_bytes_max: an output segment takes no batch that makes it larger, except its
                first. It takes none that ends beyond its base offset + 2^31 - 1 either; so an
                empty one can be full too, if it begins far below its first batch.
            keeps_unkeyed: whether records without a key stay.
            producer_marker_epochs: the epochs of active producers that have no data batch; of
                their control batches at least the headers stay.
            transactions: what became of those in the dirty section; None if nothing was aborted.
            stamps_markers: whether a marker whose transaction has nothing left gets its delete
                horizon. Only where the filter is fed with all of the log below it.
            start_offset: where the map begins: it knows each key that is there from here on.
            is_verified: whether the account says all that a verification asks for; it costs a hash
                of each record that is written anew.

        Raises:
            ValueError: `end_offset` is beyond `offset_map.end_offset`, or a bound is negative.
        """

    def start_group(self) -> None:
        """Begin a group of segments: its account begins anew."""

    @property
    def account(self) -> GroupAccount:
        """What must remain of the group as far as it was fed, and what was met in it."""

    def start_segment(self, base_offset: int) -> None:
        """Begin an output segment: positions, index state and summary begin anew.

        Call it before the first `feed` and after each `segment_full`. Offsets go on growing: a
        batch fed out of order is corruption.
        """

    def feed(self, chunk: Buffer, *, position: int = 0) -> FilterStep:
        """Filter the whole batches of `chunk`, bytes of a segment that begin at a batch.

        Args:
            position: where `chunk` begins in its segment; for error messages only.

        Raises:
            CorruptBatch, DecompressionTooLarge: see the module.
            ValueError: there is no output segment yet.
        """

    @property
    def segment(self) -> SegmentSummary:
        """What the current output segment holds so far."""

    @property
    def counts(self) -> Mapping[Verdict, VerdictCount]:
        """Records by verdict since the filter was made; every verdict is there."""
