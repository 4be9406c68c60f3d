"""Committed offsets, small in memory and read by the million.

A group can commit for tens of thousands of partitions, and a start reads them all: one takes 72 bytes,
and the records of `__consumer_offsets` (`group_records.py` draws them) are read by compiled code.
"""

import uuid

from typing_extensions import Buffer

class CommittedOffset:
    """What a group has committed in one partition. Immutable."""

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
        """Of the next record that the group wants."""

    @property
    def commit_timestamp(self) -> int:
        """When it was committed, milliseconds since the epoch."""

    @property
    def leader_epoch(self) -> int:
        """Of the record before the offset; -1: the client did not say."""

    @property
    def metadata(self) -> str:
        """The client's own."""

    @property
    def expire_timestamp(self) -> int:
        """When it expires, where the commit itself said so; else -1."""

    @property
    def topic_id(self) -> uuid.UUID:
        """The topic's, where the commit named it by its id; else zero."""

    @property
    def record_offset(self) -> int:
        """Where it is written: of two commits the one that stands later in the log holds."""

class OffsetScan:
    """What the records of one partition of `__consumer_offsets` come to, fed in the log's order.

    An offset in a transaction is pending until its marker: then it holds, unless a later one does, or is
    gone. A tombstone takes whatever stands before it.

    One thread at a time. Holds the GIL while it is fed: give it small pieces beside an event loop.
    """

    def __init__(self, *, decompressed_bytes_max: int) -> None: ...
    def feed(self, buffer: Buffer) -> int:
        """Take whole batches; the offset behind the last one, -1 if there was none.

        Raises:
            CorruptBatch, UnsupportedCodec, DecompressionTooLarge: a batch is not sound.
            UnknownRecord: a later release has written a commit. What it says is not known, and
                must not be replaced by something older.
        """

    @property
    def offsets(self) -> dict[str, dict[str, dict[int, CommittedOffset]]]:
        """By group, topic and partition; what was deleted may leave empty dictionaries."""

    @property
    def pending(self) -> dict[int, dict[str, dict[str, dict[int, CommittedOffset]]]]:
        """The same in each transaction without a marker so far, by its producer's id."""

    @property
    def others(self) -> dict[bytes, bytes]:
        """The last value of each key of another type that was not deleted, in the log's order."""

    @property
    def records_count(self) -> int: ...
    @property
    def unreadable_count(self) -> int:
        """Records that are no records of groups: malformed, without a key, or something else than an
        offset in a transaction."""

    @property
    def unreadable_offset(self) -> int:
        """Where the first of them is; -1 if there is none."""
