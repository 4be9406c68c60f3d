"""Compiled sums over long runs of batches: the offsets, times and producers of a segment. It makes no
Python object per batch, so that a start after a crash costs little more than reading and
checksumming.

It checks batches as `protocol.records.batch_scan.scan_batches` does and also against the batches before
them: offsets must grow, and lie within 2^31 of the segment's base.
"""

from typing_extensions import Buffer

from protocol.records.batch_scan import StopReason
from protocol.wire.numbers import Epoch, Offset, Position, ProducerId

class ProducerBatch:
    """A batch of an idempotent producer; the names are those of `BatchHeader`."""

    @property
    def producer_id(self) -> ProducerId: ...
    @property
    def producer_epoch(self) -> Epoch: ...
    @property
    def base_sequence(self) -> int: ...
    @property
    def last_sequence(self) -> int: ...
    @property
    def base_offset(self) -> Offset: ...
    @property
    def last_offset(self) -> Offset: ...
    @property
    def is_marker(self) -> bool:
        """Whether it is a control batch with an epoch that no batch before it has, and no sequence."""

class BatchTally:
    """Sums over the batches of one segment, chunk by chunk. One thread at a time."""

    def __init__(
        self,
        *,
        base_offset: int,
        index_interval_bytes: int,
        position: int = 0,
        end_offset: int | None = None,
        record_count: int = 0,
        control_count: int = 0,
        max_timestamp: int = -1,
        offset_of_max_timestamp: int = -1,
        bytes_since_entry: int = 0,
        last_entry_timestamp: int | None = None,
        producers_from: int = 0,
        size_max: int = ...,
        index_bytes_max: int = ...,
        offset_entries: int = 0,
        time_entries: int = 0,
        checks_crc: bool = True,
        keeps_commits: bool = False,
    ) -> None:
        """Begin at the start of a segment, or where earlier sums (all but the first two) ended.

        Args:
            base_offset: of the segment; index entries are relative to it.
            index_interval_bytes: a batch gets an index entry if it begins more than this after the
                batch of the last entry.
            producers_from: only batches from this offset on count for producers; 2^63 - 1: none.
            size_max, index_bytes_max: bounds of a segment that is appended to. A batch that must go into
                a new segment, as `storage/log/roll.py` decides it, stops `feed` with FULL. Without
                `size_max` there are no bounds.
            offset_entries, time_entries: the segment's index entries so far, for `index_bytes_max`.
            checks_crc: False if the batches have been checked before.
            keeps_commits: whether `ended` has commits besides aborts.
        """

    def feed(self, chunk: Buffer) -> StopReason:
        """Continue with the bytes at `position`, up to the first batch that is not valid there.

        Afterwards `position` is the end of the last valid batch. The chunk must not change meanwhile.
        Releases the GIL.

        Raises:
            MemoryError: there is no memory for the chunk's results; no byte of it was consumed.
        """

    @property
    def position(self) -> Position:
        """Bytes of the segment consumed so far."""

    @property
    def end_offset(self) -> Offset:
        """The offset after the last batch; the next batch must not begin below it."""

    @property
    def record_count(self) -> int: ...
    @property
    def control_count(self) -> int:
        """How many of the records are in control batches."""

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of batches with records; -1 if none is larger."""

    @property
    def offset_of_max_timestamp(self) -> Offset:
        """The last offset of the first batch that has `max_timestamp`; -1 if none has."""

    @property
    def bytes_since_entry(self) -> int:
        """Bytes from the batch of the last index entry to the end; from the start without an entry."""

    @property
    def index_entries(self) -> tuple[bytes, bytes, bytes, bytes]:
        """Returns the columns of the entries made so far, in native order: relative last offsets
        (int32) and positions (int32) of the offset index, timestamps (int64) and relative offsets
        (int32) of the time index.
        """

    @property
    def epochs(self) -> list[tuple[Epoch, Offset]]:
        """Each leader epoch that is larger than all before it, with its start offset."""

    @property
    def has_producers(self) -> bool:
        """Whether a batch has a producer id and counts for producers."""

    def last_batches(self) -> list[ProducerBatch]:
        """Returns the last five data batches of each producer in log order, together with the
        markers that raised its epoch.
        """

    @property
    def ended(self) -> list[tuple[ProducerId, Offset, Offset, bool, bool]]:
        """The rows of `aborted`, and with `keeps_commits` those of all other control batches that may
        end a transaction, each with whether it is an ABORT.
        """

    @property
    def aborted(self) -> list[tuple[ProducerId, Offset, Offset, bool]]:
        """Each ABORT that ends a transaction, in order: the producer's id, the transaction's first
        offset in these batches (-1: not in them), the marker's own offset, and whether it is the
        producer's first marker here. Such a first marker may end a transaction that was open before
        these batches.
        """

    def transactions(self) -> list[tuple[ProducerId, Offset, bool, Epoch]]:
        """Returns, for each producer with transactions: its id; the first offset of the transaction
        that has no marker in these batches (-1: none); whether there is a marker, which ends a
        transaction that was open before these batches; and the largest coordinator epoch of its
        markers (-1: unknown).
        """

def sound_offset_entries(offsets: Buffer, positions: Buffer, *, span: int, size: int) -> int:
    """Returns the number of leading valid entries of an offset index (columns of int32, native order).
    Valid: both columns grow, offsets lie within [0, span) and positions within [0, size).
    """

def sound_time_entries(timestamps: Buffer, offsets: Buffer, *, span: int) -> int:
    """Returns the same for a time index: timestamps (int64) grow; offsets (int32) do not fall and lie
    within [0, span).
    """
