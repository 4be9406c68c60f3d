"""A walk over the records of one batch: are they sound, and are they what a topic takes?

The records may come in windows, as a codec inflates them: a window may end anywhere in a record, and
nothing of it is kept. So the records of a compressed batch need never be in memory as a whole. It runs
without the GIL where it takes long. See `record_format.h` for the layout.
"""

from typing_extensions import Buffer

UNFIT_MAX: int
"""Of so many unfit records a walk says which they are."""

TIMESTAMP_MIN: int
TIMESTAMP_MAX: int

class RecordScan:
    """What a walk found in the records of a batch."""

    @property
    def first_keyless(self) -> int:
        """The index of the first record whose key is null, -1 if all have keys."""

    @property
    def last_offset_delta(self) -> int:
        """Of the last record, which must not lie past the batch's last offset; -1 without records."""

    @property
    def youngest_timestamp(self) -> int:
        """The largest timestamp, which belongs into the batch's header; -1 without records."""

    @property
    def unfit(self) -> tuple[tuple[int, int | None], ...]:
        """The records that the topic does not take, in order: index, and the timestamp that is out
        of bounds, or None if the record lacks a key. At most UNFIT_MAX of them.
        """

    @property
    def unfit_count(self) -> int: ...
    @property
    def untimely_count(self) -> int:
        """How many of the unfit records have a key, and a timestamp that is out of bounds."""

class RecordWalk:
    """Looks at every record of a batch, in the order of their bytes."""

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
            dense: offset deltas must be 0, 1, 2, ... as in a batch that a producer sent; otherwise
                they must grow, as in a batch that was compacted.
            keyed: a record without a key is unfit.
            timestamp_from, timestamp_to: a timestamp outside of these is unfit, but for -1 ("none").

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
        """What was found, once all bytes were walked over.

        Raises:
            CorruptBatch: records are missing, or the last one is cut off.
        """

def scan_records(
    records: Buffer, record_count: int, *, base_timestamp: int, dense: bool = True
) -> RecordScan:
    """Walk over records that are in memory as a whole: everything behind a batch's header, inflated.

    Raises:
        CorruptBatch: as `RecordWalk` does.
    """
