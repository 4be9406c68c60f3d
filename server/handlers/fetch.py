"""Fetch (key 1), v4-v18.

Behaviour: answers when `min_bytes` are there, when a partition has an error or diverges, or after
`max_wait_ms`; until then it is parked, and each log it asks for wakes it. The size limits are soft:
the first batch of the first partition that has one is returned whole (KIP-74). Records are regions
of segment files, never decoded and, but for small ones, never copied. A client that names the epoch
of its last record and has left this log gets `diverging_epoch` and no records. A reader of committed
records is sent what lies below the last stable offset, with the aborted transactions in it. What the
page cache does not have is read in a thread first; the connection's next request waits for it.
A partition that is named more than once is read and answered once, in the place where it is named
first and as it is named last, as in Kafka.
Versions: v5 log_start_offset · v7 sessions (KIP-227) · v9 current_leader_epoch (KIP-320) · v11
rack_id · v12 last_fetched_epoch (KIP-595) · v13 topic ids (KIP-516, docs/design/topic-ids.md) · v15
to v18 fields that only replicas send, and node_endpoints, which one broker has no use for.
Not implemented: sessions are declined with session id 0, so clients send all partitions each time;
fetching from followers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from uuid import UUID

from protocol.error_codes import ErrorCode
from protocol.messages.fetch import (
    NOT_DIVERGING,
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from protocol.primitives import ZERO_UUID
from server.dispatch import RequestContext
from server.fetch_waiters import ParkedFetch
from server.topic_ids import name_of_topic
from storage.errors import NotCached, StorageError
from storage.log import PartitionLog
from storage.reader import Isolation, ReadResult

IDS_SINCE = 13

PARTITIONS_AT_ONCE = 64
"""A fetch of so many is read in one turn of the loop: that takes about a millisecond."""

UNKNOWN_TOPIC = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
"""Partitions refused with these are not counted: their topics' names are the client's choice."""

COPIED_BYTES_MAX = 32 << 10
"""Up to so much of a partition is copied: that costs less than a region's own system call, and an
answer from hundreds of partitions does not hold hundreds of descriptors until it is sent. Copies count
as answers do; where memory for them is short, nothing is copied."""


async def handle(request: FetchRequest, context: RequestContext) -> FetchResponse | None:
    """Read, wait if there is too little, answer."""
    if request.session_id != 0 and request.session_epoch > 0:
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, responses=())
    fetch = _Fetch(request, context)
    try:
        await fetch.read_all()
        if not fetch.is_ready:
            await _wait(fetch, request.max_wait_ms / 1000, context)
        if context.connection.is_lost:
            fetch.release()
            return None
        return await fetch.response()
    except BaseException:
        fetch.release()
        raise
    finally:
        if fetch.is_long:
            await fetch.forget()


def refuse(
    request: FetchRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> FetchResponse:
    return FetchResponse(
        error_code=error_code,
        responses=tuple(
            FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=tuple(_refused(p.partition, error_code) for p in topic.partitions),
            )
            for topic in request.topics
        ),
    )


async def _wait(fetch: _Fetch, timeout_s: float, context: RequestContext) -> None:
    """Wait for enough data, the time to be over, or the connection to end."""
    clock, connection = context.broker.clock, context.connection
    deadline_s = clock.monotonic() + timeout_s
    parked = context.broker.fetch_waiters.park()
    connection.park(parked)
    try:
        await fetch.watch(parked)
        while not fetch.is_ready and not connection.is_ending:
            rest_s = deadline_s - clock.monotonic()
            if rest_s <= 0:
                return
            if not parked.is_woken:
                await parked.wait(rest_s)
                context.pace.begin()
            await fetch.read_again(parked.take_woken())
    finally:
        connection.park(None)
        parked.leave()


class _Fetch:
    """One fetch: the partitions it asks for, and what was read of each so far.

    Holds the pins of what it has read until `response` passes them on or `release` drops them.
    """

    __slots__ = (
        "_bytes_max",
        "_context",
        "_copied_bytes",
        "_isolation",
        "_partitions",
        "_pinned",
        "_request",
        "_topics",
        "_watched",
        "bytes",
        "has_fault",
        "is_long",
    )

    def __init__(self, request: FetchRequest, context: RequestContext) -> None:
        # Constant after construction
        self._request = request
        self._context = context
        self.is_long = _is_long(request.topics)
        """Whether it takes so many partitions that it has to give up the loop in between."""
        self._bytes_max = min(request.max_bytes, context.broker.config.fetch_max_bytes)
        committed = request.isolation_level == Isolation.READ_COMMITTED
        self._isolation = Isolation.READ_COMMITTED if committed else Isolation.READ_UNCOMMITTED
        # Constant once they are named: topics by their names or ids, partitions in the order in
        # which they are named first.
        self._topics: dict[str | UUID, _AskedTopic] = {}
        self._partitions: list[_AskedPartition] = []
        self._watched: dict[PartitionLog, _AskedPartition] = {}
        # State: bytes is the sum over the partitions, and so are the copied ones, which the bound on
        # answers counts; pinned are those that hold a pin.
        self.bytes = 0
        self._copied_bytes = 0
        self.has_fault = False
        """Whether a partition had an error or diverged."""
        self._pinned: set[_AskedPartition] = set()

    @property
    def is_ready(self) -> bool:
        """Whether to answer without waiting."""
        wanted = min(self._request.min_bytes, self._bytes_max)
        return (
            self.bytes >= wanted
            or self._request.max_wait_ms <= 0
            or self.has_fault
            or not self._partitions
        )

    async def read_all(self) -> None:
        """Read every partition in the order it was asked for."""
        await self._name_all()
        pace, is_long = self._context.pace, self.is_long
        for asked in self._partitions:
            if is_long and pace.is_over:
                await pace.rest()
            await self._read(asked)

    async def watch(self, parked: ParkedFetch) -> None:
        """Have every log that was read wake the fetch; those that changed meanwhile, at once."""
        pace = self._context.pace
        for asked in self._partitions:
            if pace.is_over:
                await pace.rest()
            if asked.log is not None:
                self._watched[asked.log] = asked
                parked.watch(asked.log)
                if asked.has_changed:
                    parked.wake(asked.log)

    async def read_again(self, logs: Iterable[PartitionLog]) -> None:
        """Read the partitions of these logs again: they have changed."""
        pace = self._context.pace
        for log in logs:
            if pace.is_over:
                await pace.rest()
            await self._read(self._watched[log])

    async def response(self) -> FetchResponse:
        """The answer with all that was read; its regions' pins go with it."""
        pace, is_long = self._context.pace, self.is_long
        probe = self._context.broker.probe
        by_topic: dict[_AskedTopic, list[PartitionData]] = {}
        for asked in self._partitions:
            if is_long and pace.is_over:
                await pace.rest()
            by_topic.setdefault(asked.topic, []).append(asked.data(self._isolation))
            if asked.error_code not in UNKNOWN_TOPIC:
                failed = asked.error_code != ErrorCode.NONE
                probe.partition_fetched(asked.topic.name, asked.bytes, is_failed=failed)
        responses = []
        for topic in self._topics.values():
            if is_long and pace.is_over:
                await pace.rest()
            if (partitions := by_topic.pop(topic, None)) is not None:
                responses.append(topic.response(partitions))
        # From here on the connection counts them.
        self._count_copies(-self._copied_bytes)
        return FetchResponse(responses=tuple(responses))

    def release(self) -> None:
        """Drop the pins of what was read."""
        self._count_copies(-self._copied_bytes)
        for asked in self._pinned:
            asked.release()
        self._pinned.clear()

    async def forget(self) -> None:
        """Free what it has collected; it can do nothing more."""
        pace = self._context.pace
        await pace.empty(self._watched)
        await pace.empty(self._partitions)
        await pace.empty(self._topics)

    async def _name_all(self) -> None:
        """Collect the partitions that the request names, each once."""
        pace = self._context.pace
        for topic in self._request.topics:
            if not self.is_long:
                self._name(topic, topic.partitions)
                continue
            for start in range(0, max(len(topic.partitions), 1), PARTITIONS_AT_ONCE):
                if pace.is_over:
                    await pace.rest()
                self._name(topic, topic.partitions[start : start + PARTITIONS_AT_ONCE])

    def _name(self, topic: FetchTopic, partitions: Sequence[FetchPartition]) -> None:
        has_ids = self._context.header.api_version >= IDS_SINCE
        key = topic.topic_id if has_ids else topic.topic
        asked = self._topics.get(key)
        if asked is None:
            name = name_of_topic(topic.topic_id, self._context) if has_ids else topic.topic
            asked = self._topics[key] = _AskedTopic(name, topic.topic_id if has_ids else None)
        places, known = asked.places, self._partitions
        for wanted in partitions:
            place = places.setdefault(wanted.partition, len(known))
            if place == len(known):
                known.append(_AskedPartition(asked, wanted))
            else:
                known[place].wanted = wanted

    async def _read(self, asked: _AskedPartition) -> None:
        """Read what the page cache has, on the loop, and what it has not, in a thread."""
        if asked.bytes:
            self.bytes -= asked.bytes
            self._count_copies(-asked.copied_bytes)
            asked.release()
            self._pinned.discard(asked)
        topic, wanted = asked.topic, asked.wanted
        if topic.id is None:
            log = self._context.log_of(topic.name, wanted.partition, wanted.current_leader_epoch)
        else:
            log = self._log_by_id(topic.id, asked)
        if isinstance(log, ErrorCode):
            asked.refuse(log)
            self.has_fault = True
            return
        read = partial(
            log.read,
            wanted.fetch_offset,
            max_bytes=max(0, min(wanted.partition_max_bytes, self._bytes_max - self.bytes)),
            whole_first_batch=self.bytes == 0,
            isolation=self._isolation,
            last_fetched_epoch=wanted.last_fetched_epoch,
        )
        try:
            try:
                found = read(cached_only=True)
            except NotCached:
                found = await self._context.broker.cold_reads.run(read)
                self._context.pace.begin()
            if not isinstance(found, ErrorCode):
                asked.take(log, found, may_copy=self._context.broker.answers.has_room)
        except StorageError as error:
            found = self._context.code_of(error)
        if isinstance(found, ErrorCode):
            asked.refuse(found)
            self.has_fault = True
        elif found.diverging_epoch is not None:
            self.has_fault = True
        self.bytes += asked.bytes
        if asked.copied_bytes:
            self._count_copies(asked.copied_bytes)
        elif asked.bytes:
            self._pinned.add(asked)

    def _count_copies(self, change: int) -> None:
        """Count copies in, or out, in the memory for answers."""
        self._copied_bytes += change
        if change > 0:
            self._context.broker.answers.hold(change)
        elif change < 0:
            self._context.broker.answers.give_back(-change)

    def _log_by_id(self, topic_id: UUID, asked: _AskedPartition) -> PartitionLog | ErrorCode:
        name, wanted = asked.topic.name, asked.wanted
        if not name:
            return ErrorCode.UNKNOWN_TOPIC_ID
        log = self._context.log_of(name, wanted.partition, wanted.current_leader_epoch)
        if isinstance(log, PartitionLog) and log.topic_id != topic_id:
            # The topic was deleted meanwhile, and its name is another topic's now.
            return ErrorCode.INCONSISTENT_TOPIC_ID
        return log


def _is_long(topics: Sequence[FetchTopic]) -> bool:
    if len(topics) > PARTITIONS_AT_ONCE:
        return True
    return sum([len(topic.partitions) for topic in topics]) > PARTITIONS_AT_ONCE


class _AskedTopic:
    """One topic of a fetch."""

    __slots__ = ("id", "name", "places")

    def __init__(self, name: str, topic_id: UUID | None) -> None:
        self.name = name
        """Empty if it was asked for by an id that no topic has."""
        self.id = topic_id
        """None if it was asked for by its name."""
        self.places: dict[int, int] = {}
        """By the number of a partition, where it stands among all that are asked for."""

    def response(self, partitions: list[PartitionData]) -> FetchableTopicResponse:
        """The topic's part of the answer."""
        return FetchableTopicResponse(
            topic=self.name, topic_id=self.id or ZERO_UUID, partitions=tuple(partitions)
        )


class _AskedPartition:
    """One partition of a fetch and what was read of it."""

    __slots__ = ("_copy", "_read", "bytes", "error_code", "log", "topic", "wanted")

    def __init__(self, topic: _AskedTopic, wanted: FetchPartition) -> None:
        self.topic = topic
        self.wanted = wanted
        # State: a read result exactly while there is no error.
        self.log: PartitionLog | None = None
        self._read: ReadResult | None = None
        self._copy: bytes | None = None
        """What was read, if that is little; then nothing is pinned."""
        self.bytes = 0
        self.error_code = ErrorCode.NONE

    @property
    def has_changed(self) -> bool:
        """Whether a read would find more now, or an error."""
        log, read = self.log, self._read
        if log is None or read is None:
            return False
        return log.high_watermark != read.high_watermark or log.offline_reason is not None

    @property
    def copied_bytes(self) -> int:
        """What was copied of it into memory."""
        return 0 if self._copy is None else len(self._copy)

    def take(self, log: PartitionLog, read: ReadResult, *, may_copy: bool) -> None:
        """Keep what was read; nothing that was read before may be pinned."""
        self.log = log
        self._read = read
        self._copy = None
        size = sum(region.size for region in read.regions)
        if size <= COPIED_BYTES_MAX and (may_copy or not size):
            self._copy = b"".join(region.read_bytes() for region in read.regions)
            read.release()
        self.bytes = size

    def refuse(self, error_code: ErrorCode) -> None:
        """Answer this partition with an error."""
        self.release()
        self.error_code = error_code

    def release(self) -> None:
        """Drop what was read."""
        if self._read is not None:
            self._read.release()
        self._read = self._copy = None
        self.bytes = 0

    def data(self, isolation: Isolation) -> PartitionData:
        """The partition's part of the answer."""
        read = self._read
        if read is None:
            return _refused(self.wanted.partition, self.error_code)
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
    """Null for who reads what is not committed, as in Kafka."""
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


def _refused(partition: int, error_code: ErrorCode) -> PartitionData:
    return PartitionData(
        partition_index=partition, error_code=error_code, high_watermark=-1, records=b""
    )
