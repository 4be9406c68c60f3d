"""Compiled sums over long runs of batches: what a segment's bytes say of its offsets, times and
producers. No Python object is made for a batch, so that a start after a crash costs little more than
reading and checksumming.

Batches are checked as by `protocol.batch_scan.scan_batches` and, in addition, against what stands before
them: offsets grow, and lie within 2^31 of the segment's base.
"""

from typing_extensions import Buffer

from protocol.batch_scan import StopReason

class ProducerBatch:
    """A batch of an idempotent producer; the names are those of `BatchHeader`."""

    @property
    def producer_id(self) -> int: ...
    @property
    def producer_epoch(self) -> int: ...
    @property
    def base_sequence(self) -> int: ...
    @property
    def last_sequence(self) -> int: ...
    @property
    def base_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def is_marker(self) -> bool:
        """It is a control batch, with an epoch that no batch before it has, and no sequence."""

class BatchTally:
    """The sums over the batches of one segment, chunk by chunk. One thread at a time."""

    def __init__(
        self,
        *,
        base_offset: int,
        index_interval_bytes: int,
        position: int = 0,
        end_offset: int | None = None,
        record_count: int = 0,
        max_timestamp: int = -1,
        offset_of_max_timestamp: int = -1,
        bytes_since_entry: int = 0,
        last_entry_timestamp: int | None = None,
        producers_from: int = 0,
    ) -> None:
        """Begin at the start of a segment, or where earlier sums (all but the first two) ended.

        Args:
            base_offset: of the segment; index entries are relative to it.
            index_interval_bytes: an index entry is made when more than this lies behind the last one.
            producers_from: only batches from this offset on count for producers; 2^63 - 1: none.
        """

    def feed(self, chunk: Buffer) -> StopReason:
        """Go on with the bytes at `position`, up to the first batch that may not stand there.

        `position` tells how far it came. The chunk must not change meanwhile. Releases the GIL.

        Raises:
            MemoryError: there is no room for what the chunk may hold; nothing of it was taken.
        """

    @property
    def position(self) -> int:
        """Bytes of the segment that were taken."""

    @property
    def end_offset(self) -> int:
        """The offset after the last batch's; where the next one may begin."""

    @property
    def record_count(self) -> int: ...
    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of batches with records; -1 if none is larger."""

    @property
    def offset_of_max_timestamp(self) -> int:
        """The last offset of the first batch that has it; -1 if none has."""

    @property
    def bytes_since_entry(self) -> int:
        """Bytes from the batch of the last index entry on; from the start if there is none."""

    @property
    def index_entries(self) -> tuple[bytes, bytes, bytes, bytes]:
        """The columns of the entries made so far, in native order: relative last offsets (int32) and
        positions (int32) of the offset index, timestamps (int64) and relative offsets (int32) of the
        time index.
        """

    @property
    def epochs(self) -> list[tuple[int, int]]:
        """Each leader epoch that is larger than all before it, and the offset where it begins."""

    def last_batches(self) -> list[ProducerBatch]:
        """The last five data batches of each producer, each producer's in their order; among them
        the markers that raised its epoch.
        """

    @property
    def aborted(self) -> list[tuple[int, int, int, bool]]:
        """Each ABORT that ends something, in order: the producer's id, where what it ends begins in
        these batches (-1: not in them), the marker's own offset, and whether it is the producer's first
        marker here: what was open before these batches, if anything was, is what it ends.
        """

    def transactions(self) -> list[tuple[int, int, bool, int]]:
        """Producers with transactions: the id, where the one begins that has no marker in these
        batches (-1: none), whether there is a marker, which ends what was open before them, and the
        largest coordinator epoch of its markers (-1: none says one).
        """

def sound_offset_entries(offsets: Buffer, positions: Buffer, *, span: int, size: int) -> int:
    """How many entries of an offset index (columns of int32, native order) there are before the first
    that cannot stand there: both columns grow, offsets within [0, span) and positions within
    [0, size).
    """

def sound_time_entries(timestamps: Buffer, offsets: Buffer, *, span: int) -> int:
    """The same of a time index: timestamps (int64) grow; offsets (int32) do not fall, within
    [0, span).
    """
