"""The partitions of a fetch: what the client asked for, what was read, and the answer's parts.

    request -> AskedPartitions -> reads -> answer
               |  by topic: AskedTopic -> AskedPartition
               |  in order: AskedPartition, AskedPartition, ...

The records of a read are regions of segment files, which it pins. Small ones are copied instead.

A session keeps its partitions from one request to the next. Each remembers what its last answer said,
so that the next answer has only what has changed, and so that a partition at the end of its log is not
read until the log changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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
from protocol.wire.numbers import Offset
from protocol.wire.primitives import ZERO_UUID
from server.net.send_queue import COPIED_BYTES_MAX
from server.runtime.turns import Pace
from server.topics.names import NAME_LENGTH_MAX
from storage.files.errors import NotCached
from storage.log.log import PartitionLog
from storage.segment.reader import Isolation, ReadResult

NOTHING_SAID = -1
"""The offset of a partition about which no answer has said anything, or nothing but an error."""

TopicKey = str | UUID
"""What a request calls a topic: its id from version 13 on, before that its name."""


class AskedTopic:
    """One topic of a fetch."""

    __slots__ = ("id", "is_followed", "is_in_snapshot", "is_view", "may_read", "name")

    def __init__(self, name: str, topic_id: UUID | None) -> None:
        self.name = name
        """The topic's name; empty as long as no topic has had the id that the request gives."""
        self.id = topic_id
        """The topic's id; None if the request gives its name."""
        self.may_read = False
        """Whether the client may read the topic."""
        self.is_followed = False
        """Whether it is a coordinator's topic, and the client may follow it as a standby."""
        self.is_view = False
        """Whether it is the view of a topic's last values."""
        self.is_in_snapshot = False
        """Whether it is a topic in a snapshot, or the view of one."""

    def response(self, partitions: list[PartitionData]) -> FetchableTopicResponse:
        """Returns the topic's part of the answer."""
        return FetchableTopicResponse(
            topic=self.name, topic_id=self.id or ZERO_UUID, partitions=tuple(partitions)
        )


class AskedPartition:
    """One partition of a fetch, and what was read from it."""

    __slots__ = (
        "_copy",
        "_epoch",
        "_is_at_end",
        "_read",
        "_said_high_watermark",
        "_said_log_start",
        "bytes",
        "error_code",
        "log",
        "topic",
        "wanted",
    )

    def __init__(self, topic: AskedTopic, wanted: FetchPartition) -> None:
        self.topic = topic
        self.wanted = wanted
        """The last parameters that the client gave. `ask_for` changes them."""
        # State: there is a read result exactly while there is no error and no answer has taken it.
        self.log: PartitionLog | None = None
        self._read: ReadResult | None = None
        self._copy: bytes | memoryview | tuple[bytes | memoryview, ...] | None = None
        """The records, if they are small enough to be copied, or come from a view; then nothing is
        pinned."""
        self.bytes = 0
        self.error_code = ErrorCode.NONE
        # What the last answer said, for a session.
        self._said_high_watermark = self._said_log_start = NOTHING_SAID
        self._epoch = NOTHING_SAID
        """The log's epoch when it was read last."""
        self._is_at_end = False
        """Whether that answer left the client at the log's end, without an error."""

    def ask_for(self, wanted: FetchPartition) -> None:
        """Take new parameters of the client."""
        self.wanted = wanted
        self._is_at_end = False

    @property
    def has_changed(self) -> bool:
        """Whether a read would now return more, or an error, than the last one of this request or, if
        this request has not read it, than the last answer."""
        log, read = self.log, self._read
        if log is None:
            return False
        known = self._said_high_watermark if read is None else read.high_watermark
        return log.offsets.high_watermark != known or log.offline_reason is not None

    @property
    def is_news(self) -> bool:
        """Whether an answer in a session must have the partition: records, an error or a change."""
        read = self._read
        return (
            read is None
            or self.bytes > 0
            or read.high_watermark != self._said_high_watermark
            or read.log_start_offset != self._said_log_start
            or read.diverging_epoch is not None
        )

    @property
    def copied_bytes(self) -> int:
        """How many bytes of records were copied into memory."""
        return 0 if self._copy is None else self.bytes

    def store(self, log: PartitionLog, read: ReadResult, *, may_copy: bool) -> None:
        """Store a read result, or a copy of it. An earlier result must be released before."""
        self.log = log
        self._epoch = log.leader_epoch
        self._read = read
        self._copy = None
        self.error_code = ErrorCode.NONE
        size = read.size
        if size <= COPIED_BYTES_MAX and (may_copy or not size):
            # Otherwise the region is sent: the loop must not wait for the disk.
            with suppress(NotCached):
                self._copy = read.copied()
        self.bytes = size

    def store_latest(
        self, log: PartitionLog, read: ReadResult, records: tuple[bytes | memoryview, ...]
    ) -> None:
        """Store what was read of a view: records in memory, beside a result without any."""
        self.store(log, read, may_copy=True)
        self._copy = records
        self.bytes = sum([len(each) for each in records])

    def refuse(self, error_code: ErrorCode) -> None:
        """Set the error code that this partition is answered with."""
        self.release()
        self.log = None
        self.error_code = error_code

    def release(self) -> None:
        """Drop the read result and its pins."""
        if self._read is not None:
            self._read.release()
        self._read = self._copy = None
        self.bytes = 0

    def data(self, isolation: Isolation) -> PartitionData:
        """Returns the partition's part of the answer, which takes over the pins."""
        read = self._read
        if read is None:
            return refused_partition(self.wanted.partition, self.error_code)
        return PartitionData(
            partition_index=self.wanted.partition,
            error_code=ErrorCode.NONE,
            high_watermark=self._end_of(read),
            last_stable_offset=read.last_stable_offset,
            log_start_offset=read.log_start_offset,
            aborted_transactions=_aborted(read, isolation),
            diverging_epoch=_epoch_end_offset(read.diverging_epoch),
            records=tuple(read.regions) if self._copy is None else self._copy,
        )

    def _end_of(self, read: ReadResult) -> Offset:
        """Returns where the client's topic ends: a view never has what is not stable."""
        return read.last_stable_offset if self.topic.is_view else read.high_watermark

    def note_answer(self) -> None:
        """Remember for the next request of the session what the answer says.

        Records stay until `forget_read`, because the answer may still fail.
        """
        read = self._read
        if read is None:
            self._said_high_watermark = self._said_log_start = NOTHING_SAID
            self._is_at_end = False
            return
        self._said_high_watermark = read.high_watermark
        self._said_log_start = read.log_start_offset
        has_more = self.wanted.fetch_offset < self._end_of(read) or read.diverging_epoch is not None
        # Each read of a follower says how far it has come.
        self._is_at_end = not has_more and not self.topic.is_followed
        if not self.bytes:
            self.forget_read()

    def forget_read(self) -> None:
        """Forget what was read: the answer has taken over the pins, or there are none."""
        self._read = self._copy = None
        self.bytes = 0


def changed(partitions: Iterable[AskedPartition]) -> list[AskedPartition]:
    """Returns those partitions of a session in which a read may find what the last answer did not say.

    What the client may do, and who it is, is not looked at. One loop, because a consumer of many
    partitions pays for it with each request.
    """
    return [
        each
        for each in partitions
        if not each._is_at_end
        or (log := each.log) is None
        or (offsets := log.offsets).high_watermark != each._said_high_watermark
        or offsets.start != each._said_log_start
        or log.appender.leader_epoch != each._epoch
        or log.offline_reason is not None
    ]


class AskedPartitions:
    """The partitions of one request, or of one session, in the order in which they are read."""

    __slots__ = ("_by_topic", "_order", "_topics", "has_long_name")

    def __init__(self) -> None:
        # State: both have the same topics, each with at least one partition. Topics do not refer to
        # their partitions, because these refer to them: the garbage collector would have to work.
        self._topics: dict[TopicKey, AskedTopic] = {}
        self._by_topic: dict[TopicKey, dict[int, AskedPartition]] = {}
        # The keys are all partitions of all topics; the values are not used.
        self._order: dict[AskedPartition, None] = {}
        self.has_long_name = False
        """Whether a topic was named that cannot exist, because its name is too long."""

    def __len__(self) -> int:
        return len(self._order)

    @property
    def topics(self) -> Iterable[AskedTopic]:
        """The topics, in the order in which they were first named."""
        return self._topics.values()

    def in_order(self) -> list[AskedPartition]:
        """Returns the partitions in the order in which they are read."""
        return list(self._order)

    def add(
        self,
        key: TopicKey,
        partitions: Sequence[FetchPartition],
        new_topic: Callable[[TopicKey], AskedTopic],
    ) -> None:
        """Add partitions of a topic, at the end; of those that are there, change the parameters.

        Args:
            new_topic: makes a topic that has no partition here yet.
        """
        if not partitions:
            return
        topic = self._topics.get(key)
        if topic is None:
            topic = self._topics[key] = new_topic(key)
            self.has_long_name |= len(topic.name) > NAME_LENGTH_MAX
            self._by_topic[key] = {}
        known, order = self._by_topic[key], self._order
        for wanted in partitions:
            asked = known.get(wanted.partition)
            if asked is None:
                asked = known[wanted.partition] = AskedPartition(topic, wanted)
                order[asked] = None
            else:
                asked.ask_for(wanted)

    def forget(self, key: TopicKey, partitions: Iterable[int]) -> list[AskedPartition]:
        """Remove partitions of a topic. Returns those that were there."""
        known = self._by_topic.get(key)
        if known is None:
            return []
        removed = [asked for each in partitions if (asked := known.pop(each, None)) is not None]
        for asked in removed:
            del self._order[asked]
        if not known:
            del self._by_topic[key], self._topics[key]
        return removed

    def move_to_end(self, asked: AskedPartition) -> None:
        """Let all other partitions be read before this one, which has just had its turn."""
        del self._order[asked]
        self._order[asked] = None

    async def free(self, pace: Pace) -> None:
        """Free all partitions in slices."""
        by_topic, rest = self._by_topic, (self._topics, self._order)
        self._by_topic, self._topics, self._order = {}, {}, {}
        while by_topic:
            await pace.empty(by_topic.popitem()[1])
        for collection in rest:
            await pace.empty(collection)


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
