"""A walk over the records of one batch: checks that they are sound and that the topic accepts them.

The records may come in windows, as a codec inflates them: a window may end anywhere in a record, and
the walk keeps none of its bytes. So the records of a compressed batch are never completely in memory.
It runs without the GIL if it takes long. See `record_format.h` for the layout.
"""

from typing_extensions import Buffer

UNFIT_MAX: int
"""The walk reports at most this many unfit records individually."""

TIMESTAMP_MIN: int
TIMESTAMP_MAX: int

class RecordScan:
    """The result of a walk over the records of a batch."""

    @property
    def first_keyless(self) -> int:
        """The index of the first record whose key is null, -1 if all have keys."""

    @property
    def last_offset_delta(self) -> int:
        """Offset delta of the last record; -1 without records.

        The caller must check that it does not lie beyond the batch's last offset.
        """

    @property
    def youngest_timestamp(self) -> int:
        """The largest timestamp, which the batch's header should have; -1 without records."""

    @property
    def unfit(self) -> tuple[tuple[int, int | None], ...]:
        """The records that the topic does not accept, in order: index, and the timestamp that is out
        of bounds, or None if the record lacks a key. At most UNFIT_MAX of them.
        """

    @property
    def unfit_count(self) -> int: ...
    @property
    def untimely_count(self) -> int:
        """Number of unfit records that have a key, but a timestamp out of bounds."""

class RecordWalk:
    """Checks every record of a batch, in byte order."""

    def __init__(
        self,
        record_count: int,
        *,
        base_timestamp: int,
        dense: bool = True,
        keyed: bool = False,
        timestamp_from: int = ...,
        timestamp_to: int = ...,
    ) -> None:
        """
        Args:
            dense: offset deltas must be 0, 1, 2, ... as in a batch from a producer; otherwise
                they must grow, as in a compacted batch.
            keyed: a record without a key is unfit.
            timestamp_from, timestamp_to: a timestamp outside of these is unfit, except -1 ("none").

        Raises:
            CorruptBatch: the count is negative.
        """

    def feed(self, window: Buffer) -> None:
        """Walk over the next bytes.

        Raises:
            CorruptBatch: a record is malformed, there are more bytes than records, or an offset
                delta is out of place.
        """

    def finish(self) -> RecordScan:
        """Returns the result after all bytes were fed.

        Raises:
            CorruptBatch: records are missing, or the last one is cut off.
        """

def scan_records(
    records: Buffer, record_count: int, *, base_timestamp: int, dense: bool = True
) -> RecordScan:
    """Walk over records that are completely in memory: all bytes after a batch's header, inflated.

    Raises:
        CorruptBatch: as `RecordWalk` does.
    """
