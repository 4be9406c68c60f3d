"""The per-record work of a cleaning pass, compiled and without the GIL.

A pass goes through four loops. Give the first and the last at least 1 MiB a call:

    step = key_indexer.feed(chunk)                 segment file -> blocks of its key sidecar
    offset_map.clear(part=..., parts=...)
    step = map_keys(block, offset_map, ...)        dirty section: key hash -> last offset
    step = mark_keys(block, offset_map, marks)     whole log: a bit for each superseded record
    step = batch_filter.feed(chunk, block)         what is rewritten: bytes of the cleaned segment

and before the map, where the sidecars have rows for transactions, through
`transactions.walk(block)`. `storage/key_sidecar.py` draws a block. A buffer must not be changed while
a call reads it.

The rule is `cleaner/retain.py`; this is that rule, fast. What reads a segment's bytes raises

    CorruptBatch            a batch's length, CRC, header or records are damaged; the message has
                            its position in the segment and its base offset
    DecompressionTooLarge   its records inflate beyond `decompressed_bytes_max`

and what reads a block

    KeysDiffer              the block's counts do not fit its bytes, or it does not say what the
                            segment holds

After any of them the object that was called means nothing any more.
"""

from collections.abc import Collection, Mapping

from typing_extensions import Buffer

from cleaner.retain import AbortedTransaction, Verdict
from cleaner.step import (
    FilterStep,
    GroupAccount,
    IndexStep,
    KeptKeys,
    MapStep,
    MapTally,
    MarkStep,
    SegmentSummary,
    VerdictCount,
)
from storage.key_totals import KeyTotals

SLOT_BYTES: int
"""Memory of one slot: 16 bytes of key hash, 8 bytes of offset."""

def siphash128(hash_key: bytes, data: Buffer) -> bytes:
    """Return SipHash-2-4-128 of `data` under the 16-byte `hash_key`.

    Raises:
        ValueError: `hash_key` is not 16 bytes long.
    """

def xxh3_128(data: Buffer) -> int:
    """Return XXH3, 128 bits, seed 0, of `data`: the hash of the digests, and, its low half, of the
    sidecars' checksums."""

class KeyIndexer:
    """Makes a segment's key sidecar from its bytes, block by block, and checks every record."""

    def __init__(self, hash_key: bytes, *, base_offset: int, decompressed_bytes_max: int) -> None:
        """
        Args:
            base_offset: the segment's. Its batches lie in [base_offset, base_offset + 2^31).

        Raises:
            ValueError: `hash_key` is not 16 bytes long, or `base_offset` is negative.
        """

    def feed(self, chunk: Buffer, *, position: int = 0) -> IndexStep:
        """Make a block of the whole batches of `chunk`, bytes of a segment that begin at a batch.

        Args:
            position: where `chunk` begins in its segment; for error messages only.

        Raises:
            CorruptBatch, DecompressionTooLarge: see the module.
        """

    @property
    def totals(self) -> KeyTotals:
        """What all blocks so far hold."""

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

    def clear(self, keys_max: int | None = None, *, part: int = 0, parts: int = 1) -> None:
        """Forget all keys and give the memory back.

        Args:
            keys_max: an upper bound of the keys to come, such as the record count of the dirty
                section. The map then spreads over only as many slots as those keys need, which
                saves memory and cache misses; `capacity` becomes the lesser of both.
            part: which of the `parts` equal parts of the hash space it takes from now on. Part p
                of n is made of the parts 2p and 2p + 1 of 2n.

        Raises:
            ValueError: there is no such part.
        """

    def get(self, key: Buffer) -> int | None:
        """Return the largest offset put for `key`, None if there is none."""

    def put(self, key: Buffer, offset: int) -> None:
        """Remember `offset` for `key` unless a larger one is known.

        Raises:
            ValueError: `offset` is negative, or the key is not of the map's part.
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

def map_keys(
    block: Buffer,
    offset_map: OffsetMap,
    *,
    base_offset: int,
    start_offset: int,
    end_offset: int,
    transactions: Transactions | None = None,
) -> MapStep:
    """Put the entries of a block in [start_offset, end_offset) that are of the map's part into it.

    Args:
        block: one of the sidecar of the segment at `base_offset`.
        end_offset: a batch ends there, or begins.
        transactions: what became of the section's transactions; aborted records are passed over.

    Raises:
        KeysDiffer: see the module.
    """

def mark_keys(
    block: Buffer,
    offset_map: OffsetMap,
    marks: Buffer,
    *,
    base_offset: int,
    first_entry: int,
    start_offset: int,
    end_offset: int,
    transactions: Transactions | None = None,
) -> MarkStep:
    """Set a bit for each record of a block of whose key the map knows a later one.

    Passed over: what is not of the map's part, lies at or past `end_offset`, or is aborted.

    Args:
        marks: writable. Bit i & 7 of byte i >> 3 is for the segment's i-th entry, from 0.
        first_entry: how many entries the segment's blocks before this one have.
        start_offset: where the map begins: it knows each key of its part from here on.
        end_offset: where it ends; a batch ends there, or begins.

    Raises:
        KeysDiffer: see the module.
        ValueError: `marks` is too small or cannot be written.
    """

def sum_kept(
    block: Buffer,
    offset_map: OffsetMap,
    marks: Buffer | None,
    *,
    base_offset: int,
    first_entry: int,
    end_offset: int,
    with_tombstones: bool,
    transactions: Transactions | None = None,
) -> KeptKeys:
    """Sum up the entries of a block that are of the map's part and that a pass keeps.

    Left out are those with a mark, those of aborted transactions below `end_offset`, and the pass's last
    record, which stays whatever it is.

    Args:
        marks: as `mark_keys` has set them; None for a block in which nothing is superseded.
        with_tombstones: whether they are counted, too.

    Raises:
        KeysDiffer: see the module.
        ValueError: `marks` is too small.
    """

class Transactions:
    """What became of the transactions in a section of a log, by the special rows of its sidecars.

    Walk the section once, block by block. One that was never walked holds that nothing was aborted.
    """

    def __init__(self, *, start_offset: int, end_offset: int) -> None:
        """
        Args:
            start_offset: batches that end below it are passed over.
            end_offset: a batch that reaches past it ends the walk.
        """

    def walk(self, block: Buffer, *, base_offset: int) -> bool:
        """Walk a block of the segment at `base_offset`; whether what follows may be of the section.

        Raises:
            KeysDiffer: see the module.
        """

    @property
    def end_offset(self) -> int:
        """Where a pass over the section may end, so that nothing undecided lies below.

        The section's end or, if a transaction has no marker in it, the first such one's first
        batch. If the offsets right before are of an aborted batch, that one instead: the last batch
        of a pass must stay, and what was aborted must not stay in a clean section.
        """

    @property
    def aborted(self) -> list[AbortedTransaction]:
        """The aborted transactions in the section, by producer, then by offset."""

class BatchSurvey:
    """Tells by the special rows of sidecars which batches a pass changes that no mark speaks of.

    Those are aborted data, empty batches that nobody needs, and markers of whose transaction nothing
    will be left. Look at the blocks of all segments from the log's start on, in order.
    """

    def __init__(
        self,
        *,
        end_offset: int,
        producer_last_offsets: Collection[int] = (),
        producer_marker_epochs: Mapping[int, int] | None = None,
        transactions: Transactions | None = None,
        stamps_markers: bool = False,
    ) -> None:
        """The arguments are `BatchFilter`'s."""

    def look(
        self,
        block: Buffer,
        marks: Buffer,
        *,
        base_offset: int,
        first_entry: int,
        horizon_is_due: bool,
    ) -> int:
        """How many batches of a block change, or may.

        Args:
            marks, first_entry: see `mark_keys`, which has set them.
            horizon_is_due: whether a delete horizon of the segment has passed: tombstones of
                batches that have one count as gone.

        Raises:
            KeysDiffer: see the module.
        """

class BatchFilter:
    """Decides, batch by batch, what of a log goes into the cleaned segments, and builds it."""

    def __init__(
        self,
        hash_key: bytes,
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
        is_verified: bool = False,
    ) -> None:
        """
        Args:
            hash_key: the one that the sidecars were made with.
            end_offset: where the marks end. Batches that reach past it are copied unlooked.
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
                horizon. Only where all of the log below it is fed or skipped.
            is_verified: whether the account says all that a verification asks for, and every key is
                hashed again to be compared with its entry.

        Raises:
            ValueError: `hash_key` is not 16 bytes long, or a bound is negative.
        """

    def start_group(self) -> None:
        """Begin a group of segments: its account begins anew."""

    @property
    def account(self) -> GroupAccount:
        """What must remain of the group as far as it was fed, and what was met in it."""

    def start_source(self, base_offset: int, marks: Buffer) -> None:
        """Begin a source segment: the next block fed is its first.

        Args:
            marks: what `mark_keys` made of all its blocks; not to be changed while it is fed.
        """

    def start_segment(self, base_offset: int) -> None:
        """Begin an output segment: positions, index state, summary and key block begin anew.

        Call it before the first `feed` and after each `segment_full`. Offsets go on growing: a
        batch fed out of order is corruption.
        """

    def feed(self, chunk: Buffer, key_block: Buffer, *, position: int = 0) -> FilterStep:
        """Filter the batches of `chunk`, exactly the bytes that `key_block` speaks for.

        After `segment_full` feed the rest of them with the same block.

        Args:
            position: where `chunk` begins in its segment; for error messages only.

        Raises:
            CorruptBatch, DecompressionTooLarge, KeysDiffer: see the module.
            ValueError: there is no output segment or no source yet, or the chunk has another size
                than the block says; or the source's marks are fewer than its entries.
        """

    def skip(self, key_block: Buffer, *, base_offset: int) -> None:
        """Follow what remains of transactions in a block of a segment that is not rewritten.

        Raises:
            KeysDiffer: see the module.
        """

    def take_keys(self) -> bytes:
        """End the output segment's key block: the block of what no step gave one for; empty if that
        is nothing. Call it when the segment's last source was fed."""

    @property
    def key_totals(self) -> KeyTotals:
        """What the blocks of the current output segment hold, counted as they are given out."""

    @property
    def segment(self) -> SegmentSummary:
        """What the current output segment holds so far."""

    @property
    def counts(self) -> Mapping[Verdict, VerdictCount]:
        """Records by verdict since the filter was made; every verdict is there."""

class LogSum:
    """Sums a log's last records to its table digest (`cleaner/table_digest.h`), and compares every
    record with its entry, every marker with its row, as it goes."""

    def __init__(
        self,
        hash_key: bytes,
        *,
        start_offset: int,
        end_offset: int,
        decompressed_bytes_max: int,
        transactions: Transactions | None = None,
    ) -> None:
        """
        Args:
            hash_key: the one that the sidecars were made with.
            start_offset, end_offset: records outside of [start_offset, end_offset) do not count.
            transactions: what became of those in the log; None if nothing was aborted.

        Raises:
            ValueError: `hash_key` is not 16 bytes long.
        """

    def start_source(self, base_offset: int, marks: Buffer) -> None:
        """Begin a segment: see `BatchFilter.start_source`. Segments come in offset order."""

    def feed(self, chunk: Buffer, key_block: Buffer, *, position: int = 0) -> None:
        """Add what counts of `chunk`, exactly the bytes that `key_block` speaks for.

        Raises:
            CorruptBatch, DecompressionTooLarge, KeysDiffer: see the module.
            ValueError: as `BatchFilter.feed`.
        """

    @property
    def digest(self) -> int:
        """The sum so far, 128 bits."""

    @property
    def keys(self) -> int:
        """How many records are in it."""
