"""One partition of a fetch: what the client asked for, what was read of it, and its part of the answer.

The records of a read are regions of segment files, which it pins. Small ones are copied instead.
"""

from __future__ import annotations

from contextlib import suppress
from uuid import UUID

from protocol.messages.fetch import (
    NOT_DIVERGING,
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    PartitionData,
)
from protocol.wire.error_codes import ErrorCode
from protocol.wire.primitives import ZERO_UUID
from server.net.send_queue import COPIED_BYTES_MAX
from storage.files.errors import NotCached
from storage.log.log import PartitionLog
from storage.segment.reader import Isolation, ReadResult


class AskedTopic:
    """One topic of a fetch."""

    __slots__ = ("id", "is_followed", "may_read", "name", "places")

    def __init__(
        self, name: str, topic_id: UUID | None, *, may_read: bool, is_followed: bool
    ) -> None:
        self.name = name
        """The topic's name; empty if the request gives an id that no topic has."""
        self.id = topic_id
        """The topic's id; None if the request gives its name."""
        self.may_read = may_read
        """Whether the client may read the topic."""
        self.is_followed = is_followed
        """Whether it is a coordinator's topic, and the client may follow it as a standby."""
        self.places: dict[int, int] = {}
        """Maps a partition number to its position among all requested partitions."""

    def response(self, partitions: list[PartitionData]) -> FetchableTopicResponse:
        """Returns the topic's part of the answer."""
        return FetchableTopicResponse(
            topic=self.name, topic_id=self.id or ZERO_UUID, partitions=tuple(partitions)
        )


class AskedPartition:
    """One partition of a fetch, and what was read from it."""

    __slots__ = ("_copy", "_read", "bytes", "error_code", "log", "topic", "wanted")

    def __init__(self, topic: AskedTopic, wanted: FetchPartition) -> None:
        self.topic = topic
        self.wanted = wanted
        # State: there is a read result exactly while there is no error.
        self.log: PartitionLog | None = None
        self._read: ReadResult | None = None
        self._copy: bytes | memoryview | None = None
        """The records, if they are small enough to be copied; then nothing is pinned."""
        self.bytes = 0
        self.error_code = ErrorCode.NONE

    @property
    def has_changed(self) -> bool:
        """Whether a read would now return more, or an error."""
        log, read = self.log, self._read
        if log is None or read is None:
            return False
        return log.high_watermark != read.high_watermark or log.offline_reason is not None

    @property
    def copied_bytes(self) -> int:
        """How many bytes of records were copied into memory."""
        return 0 if self._copy is None else len(self._copy)

    def store(self, log: PartitionLog, read: ReadResult, *, may_copy: bool) -> None:
        """Store a read result, or a copy of it. An earlier result must be released before."""
        self.log = log
        self._read = read
        self._copy = None
        size = read.size
        if size <= COPIED_BYTES_MAX and (may_copy or not size):
            # Otherwise the region is sent: the loop must not wait for the disk.
            with suppress(NotCached):
                self._copy = read.copied()
        self.bytes = size

    def refuse(self, error_code: ErrorCode) -> None:
        """Set the error code that this partition is answered with."""
        self.release()
        self.error_code = error_code

    def release(self) -> None:
        """Drop the read result and its pins."""
        if self._read is not None:
            self._read.release()
        self._read = self._copy = None
        self.bytes = 0

    def data(self, isolation: Isolation) -> PartitionData:
        """Returns the partition's part of the answer."""
        read = self._read
        if read is None:
            return refused_partition(self.wanted.partition, self.error_code)
        return PartitionData(
            partition_index=self.wanted.partition,
            error_code=ErrorCode.NONE,
            high_watermark=read.high_watermark,
            last_stable_offset=read.last_stable_offset,
            log_start_offset=read.log_start_offset,
            aborted_transactions=_aborted(read, isolation),
            diverging_epoch=_epoch_end_offset(read.diverging_epoch),
            records=tuple(read.regions) if self._copy is None else self._copy,
        )


def _aborted(read: ReadResult, isolation: Isolation) -> tuple[AbortedTransaction, ...] | None:
    """Returns the aborted transactions; null for a read_uncommitted consumer, as in Kafka."""
    if isolation is Isolation.READ_UNCOMMITTED:
        return None
    return tuple(
        AbortedTransaction(producer_id=producer_id, first_offset=first_offset)
        for producer_id, first_offset in read.aborted
    )


def _epoch_end_offset(diverging: tuple[int, int] | None) -> EpochEndOffset:
    if diverging is None:
        return NOT_DIVERGING
    return EpochEndOffset(epoch=diverging[0], end_offset=diverging[1])


def refused_partition(partition: int, error_code: ErrorCode) -> PartitionData:
    """Returns the answer for a partition with an error."""
    return PartitionData(
        partition_index=partition, error_code=error_code, high_watermark=-1, records=b""
    )
