"""The per-record work of a cleaning pass; compiled, runs without the GIL.

A pass has four loops. Give the first and the last at least 1 MiB per call:

    step = key_indexer.feed(chunk)                 segment file -> blocks of its key sidecar
    offset_map.clear(part=..., parts=...)
    step = map_keys(block, offset_map, ...)        dirty section: key hash -> last offset
    step = mark_keys(block, offset_map, marks)     whole log: a bit for each superseded record
    step = batch_filter.feed(chunk, block)         rewritten segments: bytes of the cleaned segment

If the sidecars have rows for transactions, `transactions.walk(block)` comes before the map.
`storage/formats/key_sidecar.py` draws a block. A buffer must not be changed while a call reads it.

This is a fast implementation of the rule in `cleaner/rules/record_verdict.py`. Functions that read a
segment's bytes raise

    CorruptBatch            a batch's length, CRC, header or records are damaged; the message has
                            its position in the segment and its base offset
    DecompressionTooLarge   its records inflate beyond `decompressed_bytes_max`

and functions that read a block raise

    KeysDiffer              the block's counts do not match its size, or it does not match the segment

After any of these errors the object must not be used again.
"""

from collections.abc import Collection, Mapping, Sequence

from typing_extensions import Buffer

from cleaner.rules.latest import Rank
from cleaner.rules.record_verdict import AbortedTransaction, Verdict
from cleaner.rules.step import (
    FilterStep,
    GroupAccount,
    IndexStep,
    KeySum,
    LatestStep,
    MapStep,
    MapTally,
    MarkStep,
    SegmentSummary,
    VerdictCount,
)
from protocol.records.compression import Codec
from protocol.wire.numbers import Offset
from storage.formats.compaction_strategy import CompactionStrategy
from storage.formats.key_totals import KeyTotals

SLOT_BYTES: int
"""Memory of one slot: 16 bytes of key hash, 8 bytes of offset."""

def siphash128(hash_key: bytes, data: Buffer) -> bytes:
    """Returns SipHash-2-4-128 of `data` under the 16-byte `hash_key`.

    Raises:
        ValueError: `hash_key` is not 16 bytes long.
    """

def xxh3_128(data: Buffer, seed: int = 0) -> int:
    """Returns XXH3 of `data`, 128 bits, used for digests; its low half is the sidecars' checksum."""

class KeyIndexer:
    """Makes a segment's key sidecar from its bytes, block by block, and checks every record."""

    def __init__(
        self,
        hash_key: bytes,
        *,
        base_offset: int,
        decompressed_bytes_max: int,
        strategy: CompactionStrategy = ...,
    ) -> None:
        """
        Args:
            strategy: which versions the sidecar has.
            base_offset: the segment's base offset. Its batches lie in [base_offset, base_offset + 2^31).

        Raises:
            ValueError: `hash_key` is not 16 bytes long, or `base_offset` is negative.
        """

    def feed(self, chunk: Buffer, *, position: int = 0) -> IndexStep:
        """Make a block from the complete batches of `chunk`, which begins at a batch.

        Args:
            position: where `chunk` begins in its segment; for error messages only.

        Raises:
            CorruptBatch, DecompressionTooLarge: see the module.
        """

    @property
    def totals(self) -> KeyTotals:
        """The totals of all blocks so far."""

class OffsetMap:
    """Maps the hash of a key to that of its records which outranks the others put: by default the last.

    One flat array of 24-byte slots, or 32 with versions or counts; open addressing. Keys are identified
    by a 128-bit hash under a secret key, so that clients cannot craft two keys that delete each other.
    Memory is committed as slots are touched, never more than `memory_bytes`, and released by `clear`.
    Owned by one worker; not safe to share between threads while a kernel call uses it.
    """

    def __init__(
        self,
        memory_bytes: int,
        hash_key: bytes,
        load_factor: float = 0.9,
        *,
        has_versions: bool = False,
        has_counts: bool = False,
    ) -> None:
        """
        Args:
            has_versions: whether records have versions.
            has_counts: whether the map counts the records of each key; then `map_keys`, `count_keys`
                and `mark_keys` need a history.

        Raises:
            ValueError: fewer than 16 slots fit in `memory_bytes`, `hash_key` is not 16 bytes long,
                or `load_factor` is not in (0, 0.95].
            MemoryError: the address space cannot be mapped.
        """

    @property
    def memory_bytes(self) -> int:
        """Size of the array: at most the `memory_bytes` argument."""

    @property
    def capacity(self) -> int:
        """Maximum number of keys at the load factor."""

    @property
    def size(self) -> int:
        """Number of keys in the map."""

    def clear(self, keys_max: int | None = None, *, part: int = 0, parts: int = 1) -> None:
        """Remove all keys and release the memory.

        Args:
            keys_max: an upper bound of the number of keys to come, such as the record count of the dirty
                section. The map then uses only as many slots as those keys need, which saves memory and
                cache misses; `capacity` becomes at most this number.
            part: which of the `parts` equal parts of the hash space the map holds from now on. Part p of
                n consists of the parts 2p and 2p + 1 of 2n.

        Raises:
            ValueError: there is no such part.
        """

    def get(self, key: Buffer) -> int | None:
        """Returns the offset of the record of `key` that outranks the others put; None if there is
        none."""

    def rank(self, key: Buffer) -> Rank | None:
        """Returns that record's rank; its version is 0 where records have none."""

    def offsets(self) -> bytearray:
        """Returns the offsets of all keys as int64 in native order, in no order of offsets. The caller
        owns them."""

    def put(self, key: Buffer, offset: int, version: int = 0) -> None:
        """Put a record of `key` unless the map has one that outranks it.

        Raises:
            ValueError: `offset` is negative, or the key is not in the map's part.
            OverflowError: the key is new and the map is at its capacity.
        """

    def rank_of(self, hashed: bytes) -> Rank | None:
        """Returns the same for the hash of a key (`siphash128`)."""

    def put_rank(self, hashed: bytes, rank: Rank) -> None:
        """Put a record by the hash of its key. Raises OverflowError if there is no slot left."""

    @property
    def left(self) -> int:
        """The number of records that were counted and that marking has not met yet; 0 without counts."""

    @property
    def tally(self) -> MapTally:
        """The number and sum of the current offsets of all keys, as counted by the puts."""

    def tally_slots(self, bounds: Collection[int]) -> tuple[MapTally, ...]:
        """Returns the number and sum of the offsets in all slots, by ranges of offsets.

        Args:
            bounds: b0 <= b1 <= ... when sorted. The first tally is that of the
                offsets below b0, the next that of [b0, b1), the last that of those at or above the
                last bound.
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
    history: History | None = None,
    dead: DeadOffsets | None = None,
) -> MapStep:
    """Put those entries of a block into the map that are in [start_offset, end_offset) and in its part.

    Args:
        block: a block of the sidecar of the segment at `base_offset`.
        end_offset: a batch ends or begins there.
        transactions: the outcomes of the section's transactions; aborted records are skipped.
        history: which older values stay; the map counts the entries, and its cells get them.
        dead: gets the records that others outrank. If the map is full, `MapStep.entries` is then the
            number of the first entry that did not fit, where another call may continue.

    Raises:
        KeysDiffer: see the module.
        ValueError: a map that counts has no history, or the reverse, or the block no timestamps; or with
            `dead` the map counts, or has only a part of the keys.
    """

class DeadOffsets:
    """Where a log has something that is not the last record of its key, by blocks of offsets.

    Everything else can be sent to a reader of the last values as it is stored. The memory never grows:
    if offsets lie beyond it, blocks become larger. For one thread at a time.
    """

    def __init__(self, *, start_offset: int, shift: int, memory_bytes: int) -> None:
        """
        Args:
            start_offset: offsets below it are not noted.
            shift: a block has 2^shift offsets at first, and takes a bit.

        Raises:
            ValueError: `start_offset` or `shift` is negative, `shift` above 62, or `memory_bytes` 0.
        """

    @property
    def memory_bytes(self) -> int: ...
    def next_dead(self, offset: int, end_offset: int) -> int:
        """Returns the first offset from `offset` on that lies in a noted block; at most `end_offset`."""

    def note_special(self, block: Buffer, *, base_offset: int, segment_end_offset: int) -> None:
        """Note batches that are not sent as they are: of transactions, with markers, without records;
        the whole segment if the block counts records without a key.

        Args:
            block: a block of the sidecar of the segment from `base_offset` to `segment_end_offset`.

        Raises:
            KeysDiffer: see the module.
        """

    def note_outranked(
        self, block: Buffer, offset_map: OffsetMap, *, base_offset: int, end_offset: int
    ) -> None:
        """Note the records of a block below `end_offset` that are not the map's ones of their keys.

        Args:
            block: a block of the sidecar of the segment at `base_offset`.
            offset_map: has every key; it does not change.

        Raises:
            KeysDiffer: see the module.
        """

    def note(self, offset: int) -> None:
        """Note one record."""

    def note_as(self, other: DeadOffsets, first_offset: int, end_offset: int) -> None:
        """Note what another has noted of the offsets in [first_offset, end_offset)."""

SPILLED_BLOCK_BYTES: int
"""The size of each block of keys that have left memory; `spilled.pxi` draws one."""

def find_spilled(block: Buffer, hashed: bytes, *, has_versions: bool) -> Rank | None:
    """Returns the rank of a key in a block of keys that have left memory; None if it has none.

    Raises:
        SpillDamaged: the block is not what was written.
    """

def entry_hashes(
    block: Buffer, *, base_offset: int, start_offset: int, end_offset: int
) -> list[bytes]:
    """Returns the hashes of the keys of those entries of a block that are in [start_offset, end_offset).

    Args:
        block: a block of the sidecar of the segment at `base_offset`.

    Raises:
        KeysDiffer: see the module.
    """

def offset_at(block: Buffer, number: int, *, base_offset: int) -> int:
    """Returns the offset of an entry of a block, by its number.

    Raises:
        KeysDiffer: see the module.
        ValueError: there is no such entry.
    """

class SpillMerge:
    """Merges a map with the keys that have left memory before, both in the order of hashes.

    `feed` all earlier blocks, then take the `rest` until it is empty. What comes back are the new
    blocks. The map must not change meanwhile.
    """

    def __init__(self, offset_map: OffsetMap, dead: DeadOffsets) -> None:
        """
        Args:
            dead: gets the records of keys that are in both, and do not win.
        """

    @property
    def count(self) -> int:
        """The keys written so far."""

    def feed(self, blocks: Buffer) -> bytes:
        """Returns the next new blocks, as far as they are full.

        Raises:
            SpillDamaged: a block is not what was written.
        """

    def rest(self, size: int) -> bytes:
        """Returns about so many bytes of blocks from what is left of the map; none at the end."""

class LatestFilter:
    """Copies those records of a log that are the last ones of their keys, for readers of a view.

    Batches in which all are stay as they are; others keep their offsets, epoch and codec. None is
    transactional in the copy, and there are no markers and no batches without records. Records without
    a key are left out. The map must have every committed record up to the end offset of a feed, and must
    not change during one.
    """

    def __init__(
        self,
        offset_map: OffsetMap,
        *,
        start_offset: int,
        decompressed_bytes_max: int,
        codec_levels: tuple[int | None, ...] = ...,
        with_tombstones: bool = True,
    ) -> None:
        """
        Args:
            start_offset: batches that end below it are skipped.
            codec_levels: of the batches that are compressed again, by codec; None: its own default.
            with_tombstones: whether the last record of a deleted key is copied.

        Raises:
            ValueError: `start_offset` is negative.
        """

    def feed(
        self,
        chunk: Buffer,
        *,
        end_offset: int,
        output_bytes_max: int,
        whole_first_batch: bool,
        position: int = 0,
    ) -> LatestStep:
        """Copy from the complete batches of `chunk`, which begins at a batch.

        Args:
            end_offset: the feed ends before a batch that reaches it.
            output_bytes_max: it also ends before a batch that may not fit.
            whole_first_batch: the first one of the output may be larger.
            position: where `chunk` begins in its segment; for error messages only.

        Raises:
            CorruptBatch, DecompressionTooLarge: see the module.
        """

    @property
    def next_offset(self) -> int:
        """The offset after the last batch that was handled; at first `start_offset`."""

class History:
    """Which older values of a key stay, in a form that the kernel reads: see `cleaner/rules/history.py`.

    For one pass. Owned like the map that counts for it.
    """

    def __init__(
        self,
        *,
        versions: int,
        levels: Sequence[tuple[int, int, bool]] = (),
        now_ms: int,
        cells: OffsetMap | None = None,
    ) -> None:
        """
        Args:
            levels: see `levels_of`.
            now_ms: the time by which values are thinned.
            cells: gets the last record of each cell; given with levels, and only then.

        Raises:
            ValueError: these do not go together.
        """

    @property
    def cells(self) -> OffsetMap | None:
        """The map of cells. Clear it along with the map of keys."""

    @property
    def due_ms(self) -> int:
        """When the first of the older values that marking has kept may have to go: see `due_ms_of`."""

def count_keys(
    block: Buffer,
    offset_map: OffsetMap,
    history: History,
    *,
    base_offset: int,
    end_offset: int,
    transactions: Transactions | None = None,
) -> bool:
    """Count those entries of a block below `end_offset` whose keys the map has, and put them into cells.

    Returns whether the cells fit.

    Args:
        transactions: entries in batches that are aborted or undecided are skipped.

    Raises:
        KeysDiffer, ValueError: as `map_keys`.
    """

def raise_keys(
    block: Buffer, offset_map: OffsetMap, *, base_offset: int, start_offset: int, end_offset: int
) -> None:
    """Put those entries of a block into the map that outrank the map's record of their key.

    Entries outside of [start_offset, end_offset), and keys that the map does not have, are skipped.

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
    winners: Buffer | None = None,
    log_start_offset: int = 0,
    history: History | None = None,
) -> MarkStep:
    """Set a bit for each record of a block if the map has one of its key that outranks it.

    Records that are not in the map's part, lie at or above `end_offset`, or are aborted, are skipped.

    Args:
        marks: writable. Bit i & 7 of byte i >> 3 is for the segment's i-th entry, counted from 0.
        first_entry: the number of entries in the segment's blocks before this one.
        start_offset: where the map begins: it has every key of its part from here on.
        end_offset: where the map ends; a batch ends or begins there.
        winners: like `marks`, of the same size: gets a bit for each record that is the map's.
        log_start_offset: records below it neither win nor lose.
        history: as for `map_keys`; then mark each entry that was counted once, in offset order.

    Raises:
        KeysDiffer: see the module.
        ValueError: `marks` or `winners` is too small or cannot be written.
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
    hold_offset: int = ...,
) -> KeySum:
    """Returns the sum over the entries of a block that are in the map's part and that a pass keeps.

    Left out are marked entries, those of aborted transactions below `end_offset`, and the pass's last
    record, which always stays.

    Args:
        marks: the marks set by `mark_keys`; None for a block in which nothing is superseded.
        with_tombstones: whether tombstones below `hold_offset` are included.
        hold_offset: tombstones at and above it always are.

    Raises:
        KeysDiffer: see the module.
        ValueError: `marks` is too small.
    """

class Transactions:
    """The outcomes of the transactions in a section of a log, from the special rows of its sidecars.

    Walk the section once, block by block. Without a walk, no transaction counts as aborted.
    """

    def __init__(self, *, start_offset: int, end_offset: int) -> None:
        """
        Args:
            start_offset: batches that end below it are skipped.
            end_offset: a batch that reaches beyond it ends the walk.
        """

    def walk(self, block: Buffer, *, base_offset: int) -> bool:
        """Walk a block of the segment at `base_offset`. Returns False if the section ended in it.

        Raises:
            KeysDiffer: see the module.
        """

    def begin_fence(self, base_offset: int) -> None:
        """Continue the walk behind a fence that begins here (`cleaner/rules/fence.py`).

        The fence may hold the markers of the transactions that are open here, so these stay undecided:
        their records get into no map, and stay.
        """

    @property
    def first_undecided(self) -> Offset:
        """The first batch whose transaction is undecided because of a fence; the largest int64: none."""

    @property
    def end_offset(self) -> Offset:
        """Where a pass over the section may end, so that all transactions below are decided.

        This is the section's end or, if transactions have no marker in it, the first batch of the first
        of them. If an aborted batch lies directly before, the pass ends before that one: the last batch
        of a pass must stay, and aborted records must not stay in a clean section.
        """

    @property
    def aborted(self) -> list[AbortedTransaction]:
        """The aborted transactions in the section, sorted by producer and offset."""

    @property
    def left_out(self) -> list[tuple[int, int, int, bool]]:
        """The transactions whose records count for no key: producer id, first offset, end offset, and
        whether it was aborted. The others are undecided because of a fence."""

def sum_sizes(block: Buffer, marks: Buffer, *, first_entry: int) -> tuple[int, int]:
    """Returns the size of all records of a block's entries, and of those with a mark, uncompressed.

    Raises:
        KeysDiffer: see the module.
        ValueError: there are fewer marks than entries.
    """

class BatchSurvey:
    """Counts the batches that a pass changes apart from marked records, by the sidecars' special rows.

    These are aborted data, empty batches that no producer needs, and markers of transactions without
    remaining batches. Survey the blocks of all segments in order, starting at the log start.
    """

    def __init__(
        self,
        *,
        end_offset: int,
        producer_last_offsets: Collection[int] = (),
        producer_marker_epochs: Mapping[int, int] | None = None,
        transactions: Transactions | None = None,
        stamps_markers: bool = False,
        hold_offset: int = ...,
    ) -> None:
        """For the arguments see `BatchFilter`."""

    def look(
        self,
        block: Buffer,
        marks: Buffer,
        *,
        base_offset: int,
        first_entry: int,
        horizon_is_due: bool,
    ) -> int:
        """Returns how many batches of a block change, or may change.

        Args:
            marks, first_entry: see `mark_keys`, which has set the marks.
            horizon_is_due: whether a delete horizon of the segment has passed: tombstones in batches
                with a horizon then count as dropped.

        Raises:
            KeysDiffer: see the module.
        """

class BatchFilter:
    """Decides, batch by batch, what remains of a log, and builds the cleaned segments."""

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
        hold_offset: int = ...,
        strategy: CompactionStrategy = ...,
        codec: Codec | None = None,
        codec_levels: tuple[int | None, ...] = ...,
    ) -> None:
        """
        Args:
            hash_key: the one that the sidecars were made with.
            end_offset: where the marks end. Batches that reach beyond it are copied without judging
                them.
            tail_offset: the last offset below the pass's upper bound (the least of last stable offset,
                active base and lag bound); -1: none. The batch that ends there keeps its last record.
            producer_last_offsets: the last offset of each active producer's last data batch; if no
                record of such a batch stays, its header does.
            index_interval_bytes: bytes of output between two index entries, as in Kafka.
            segment_bytes_max: the maximum size of an output segment, unless its first batch is larger.
                Its last offset is at most its base offset + 2^31 - 1; so even an empty segment can be
                full, if its base offset is far below the first batch.
            keeps_unkeyed: whether records without a key stay.
            producer_marker_epochs: the epochs of active producers without data batches; of their control
                batches at least the headers stay.
            transactions: the outcomes of those in the dirty section, whose markers all stay; None if it
                has no special rows.
            stamps_markers: whether a marker without remaining batches gets a delete horizon. Only
                allowed if all of the log below it is fed or skipped.
            is_verified: whether the account is complete enough for a verification, and every key is
                hashed again and compared with its entry.
            hold_offset: tombstones and markers at and above it stay even after their delete horizon.
            codec: of the data batches that are rebuilt; None keeps the codec of each.
            codec_levels: the level of each codec, by its number; None: the default of Kafka's clients.
            strategy: which versions the sidecars have.

        Raises:
            ValueError: `hash_key` is not 16 bytes long, or a bound is negative.
        """

    lost_tail_offset: int
    """The base offset of the pass's last batch, if its last record stays although another one outranks
    it; else -1. Only where records have versions."""

    keeps_unkeyed: bool
    """Whether records without a key stay; may change between two groups."""

    def start_group(self) -> None:
        """Start a group of segments, with a new account."""

    @property
    def account(self) -> GroupAccount:
        """The account of the part of the group that was fed so far."""

    batches_unread: int
    """Compressed batches that were copied without being inflated, since the filter was created."""

    def start_source(
        self,
        base_offset: int,
        marks: Buffer,
        winners: Buffer | None = None,
        *,
        keys_checked: bool = False,
    ) -> None:
        """Start a source segment: the next block fed is its first.

        Args:
            marks: the marks set by `mark_keys` for all its blocks; must not change while it is fed.
            winners: the bits that `mark_keys` has set with them: due tombstones among them stay.
            keys_checked: whether its sidecar says so (`storage/formats/key_sidecar.py`); then compressed
                batches in which nothing changes are not inflated.
        """

    def start_segment(self, base_offset: int) -> None:
        """Start an output segment: resets positions, index state, summary and key block.

        Call it before the first `feed` and after each `segment_full`. Offsets must keep increasing: a
        batch fed out of order is corruption.
        """

    def feed(self, chunk: Buffer, key_block: Buffer, *, position: int = 0) -> FilterStep:
        """Filter the batches of `chunk`, which must be exactly the bytes that `key_block` covers.

        After `segment_full` feed the rest of the chunk with the same block.

        Args:
            position: where `chunk` begins in its segment; for error messages only.

        Raises:
            CorruptBatch, DecompressionTooLarge, KeysDiffer: see the module.
            ValueError: there is no output segment or no source yet, the chunk has a different size than
                in the block, or the source has fewer marks than entries.
        """

    def skip(self, key_block: Buffer, *, base_offset: int) -> None:
        """Track the transactions in a block of a segment that is not rewritten.

        Raises:
            KeysDiffer: see the module.
        """

    def take_keys(self) -> bytes:
        """Returns the output segment's last key block; empty if there are no batches for one.

        Call it after the segment's last source was fed.
        """

    @property
    def key_sum(self) -> int:
        """The sum of the keys of the current output segment's entries (`digest.h`)."""

    @property
    def has_compressed(self) -> bool:
        """Whether the current output segment has a compressed batch with keys so far."""

    @property
    def key_totals(self) -> KeyTotals:
        """The totals of the current output segment's key blocks returned so far."""

    @property
    def segment(self) -> SegmentSummary:
        """The summary of the current output segment so far."""

    @property
    def counts(self) -> Mapping[Verdict, VerdictCount]:
        """Records by verdict since the filter was created; includes every verdict."""

class LogSum:
    """Computes a log's table digest (`cleaner/kernel/table_digest.h`).

    It also compares every record with its entry, and every marker with its row.
    """

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
            transactions: the outcomes of those in the log; None if nothing was aborted.

        Raises:
            ValueError: `hash_key` is not 16 bytes long.
        """

    def start_source(self, base_offset: int, marks: Buffer) -> None:
        """Start a segment: see `BatchFilter.start_source`. Segments must come in offset order."""

    def feed(self, chunk: Buffer, key_block: Buffer, *, position: int = 0) -> None:
        """Add the records of `chunk`, which must be exactly the bytes that `key_block` covers.

        Raises:
            CorruptBatch, DecompressionTooLarge, KeysDiffer: see the module.
            ValueError: as `BatchFilter.feed`.
        """

    @property
    def digest(self) -> int:
        """The sum so far, 128 bits."""

    @property
    def keys(self) -> int:
        """Number of records in the sum."""
