"""Committed offsets: small in memory, and read by the million.

A group can commit for tens of thousands of partitions, and a start reads them all: a committed offset
takes 72 bytes, and compiled code reads the records of `__consumer_offsets` (`group_records.py` draws
them).
"""

import uuid

from typing_extensions import Buffer

class CommittedOffset:
    """A group's committed offset in one partition. Immutable."""

    def __init__(
        self,
        *,
        offset: int,
        commit_timestamp: int,
        leader_epoch: int = -1,
        metadata: str = "",
        expire_timestamp: int = -1,
        topic_id: uuid.UUID = ...,
        record_offset: int = -1,
    ) -> None: ...
    @property
    def offset(self) -> int:
        """Offset of the next record that the group will read."""

    @property
    def commit_timestamp(self) -> int:
        """Time of the commit, in milliseconds since the epoch."""

    @property
    def leader_epoch(self) -> int:
        """Leader epoch of the record before the offset; -1 if the client did not send it."""

    @property
    def metadata(self) -> str:
        """The client's own text."""

    @property
    def expire_timestamp(self) -> int:
        """Time of expiry, if the commit had a retention time; otherwise -1."""

    @property
    def topic_id(self) -> uuid.UUID:
        """The topic's id, if the commit named the topic by it; otherwise zero."""

    @property
    def record_offset(self) -> int:
        """Offset of its record in `__consumer_offsets`: of two commits the later record wins."""

class OffsetScan:
    """The state that the records of one partition of `__consumer_offsets` add up to, fed in log order.

    An offset in a transaction is pending until the transaction's marker, which commits it (unless a
    later record has committed another) or drops it. A tombstone removes every earlier offset.

    One thread at a time. `feed` holds the GIL: feed small pieces beside an event loop.
    """

    def __init__(self, *, decompressed_bytes_max: int) -> None: ...
    def feed(self, buffer: Buffer) -> int:
        """Read whole batches. Returns the offset after the last one, -1 if there was none.

        Raises:
            CorruptBatch, UnsupportedCodec, DecompressionTooLarge: a batch is not sound.
            UnknownRecord: a later release has written a commit. Its content is unknown, and older
                data must not replace it.
        """

    def sum_records(self, sums: bool) -> None:
        """Say whether the records fed from now on count in `digest`; at first they do not."""

    @property
    def digest(self) -> int:
        """The set digest of the records that were summed (`row_sum.h`), 128 bits."""

    def expect(self, next_offset: int) -> None:
        """Start to look for gaps: the next batch should begin at `next_offset`."""

    @property
    def is_gapless(self) -> bool:
        """Whether every offset since `expect` had its record: no cleaning pass has dropped any.

        Without `expect`, the first batch counts as a gap."""

    @property
    def offsets(self) -> dict[str, dict[str, dict[int, CommittedOffset]]]:
        """Committed offsets by group, topic and partition; deletions may leave empty dictionaries."""

    @property
    def pending(self) -> dict[int, dict[str, dict[str, dict[int, CommittedOffset]]]]:
        """The same for each transaction without a marker so far, by its producer's id."""

    @property
    def others(self) -> dict[bytes, bytes]:
        """The last value of each undeleted key of another type, in log order."""

    @property
    def records_count(self) -> int: ...
    @property
    def unreadable_count(self) -> int:
        """Number of records that are not records of groups: malformed, without a key, or in a
        transaction without being an offset."""

    @property
    def unreadable_offset(self) -> int:
        """Offset of the first of them; -1 if there is none."""
