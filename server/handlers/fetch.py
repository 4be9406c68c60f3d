"""Fetch (key 1), v4-v12.

Behaviour: answers when `min_bytes` are there, when a partition has an error or diverges, or after
`max_wait_ms`; until then it is parked, and each log it asks for wakes it. The size limits are soft:
the first batch of the first partition that has one is returned whole (KIP-74). Records are regions
of segment files, never decoded and, but for small ones, never copied. A client that names the epoch
of its last record and has left this log gets `diverging_epoch` and no records. A reader of committed
records is sent what lies below the last stable offset, with the aborted transactions in it. What the
page cache does not have is read in a thread first; the connection's next request waits for it.
Versions: v5 log_start_offset · v7 sessions (KIP-227) · v9 current_leader_epoch (KIP-320) · v11
rack_id · v12 last_fetched_epoch (KIP-595).
Not implemented: sessions are declined with session id 0, so clients send all partitions each time;
fetching from followers.
"""

from __future__ import annotations

from functools import partial

from protocol.error_codes import ErrorCode
from protocol.messages.fetch import (
    NOT_DIVERGING,
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from server.dispatch import RequestContext
from storage.errors import NotCached, StorageError
from storage.log import PartitionLog
from storage.reader import Isolation, ReadResult

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
answer from hundreds of partitions does not hold hundreds of descriptors until it is sent."""


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
        return fetch.response()
    except BaseException:
        fetch.release()
        raise


def refuse(
    request: FetchRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> FetchResponse:
    return FetchResponse(
        error_code=error_code,
        responses=tuple(
            FetchableTopicResponse(
                topic=topic.topic,
                partitions=tuple(_refused(p.partition, error_code) for p in topic.partitions),
            )
            for topic in request.topics
        ),
    )


async def _wait(fetch: _Fetch, timeout_s: float, context: RequestContext) -> None:
    """Wait for enough data, the time to be over, or the connection to end."""
    clock, connection = context.broker.clock, context.connection
    deadline_s = clock.monotonic() + timeout_s
    parked = context.broker.fetch_waiters.park(fetch.logs)
    connection.park(parked)
    if fetch.was_cold:
        # What changed while a thread read was not parked for yet.
        parked.woken.update(fetch.logs)
    try:
        while not fetch.is_ready and not connection.is_ending:
            rest_s = deadline_s - clock.monotonic()
            if rest_s <= 0:
                return
            await parked.wait(rest_s)
            while parked.woken:
                await fetch.read_again(parked.woken.pop())
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
        "_isolation",
        "_partitions",
        "_request",
        "bytes",
        "was_cold",
    )

    def __init__(self, request: FetchRequest, context: RequestContext) -> None:
        # Constant after construction
        self._request = request
        self._context = context
        self._bytes_max = min(request.max_bytes, context.broker.config.fetch_max_bytes)
        committed = request.isolation_level == Isolation.READ_COMMITTED
        self._isolation = Isolation.READ_COMMITTED if committed else Isolation.READ_UNCOMMITTED
        self._partitions = [
            _AskedPartition(topic.topic, partition)
            for topic in request.topics
            for partition in topic.partitions
        ]
        # State: bytes is the sum over the partitions.
        self.bytes = 0
        self.was_cold = False
        """Whether something had to be read in a thread."""

    @property
    def logs(self) -> list[PartitionLog]:
        """The logs that are read."""
        return [asked.log for asked in self._partitions if asked.log is not None]

    @property
    def is_ready(self) -> bool:
        """Whether to answer without waiting."""
        wanted = min(self._request.min_bytes, self._bytes_max)
        return (
            self.bytes >= wanted
            or self._request.max_wait_ms <= 0
            or any(asked.error_code or asked.is_diverging for asked in self._partitions)
            or not self._partitions
        )

    async def read_all(self) -> None:
        """Read every partition in the order it was asked for."""
        for asked in self._partitions:
            await self._read(asked)

    async def read_again(self, log: PartitionLog) -> None:
        """Read the partitions of `log` again: it has changed."""
        for asked in self._partitions:
            if asked.log is log:
                await self._read(asked)

    def response(self) -> FetchResponse:
        """The answer with all that was read; its regions' pins go with it."""
        by_topic: dict[str, list[PartitionData]] = {}
        for asked in self._partitions:
            by_topic.setdefault(asked.topic, []).append(asked.data(self._isolation))
            if asked.error_code not in UNKNOWN_TOPIC:
                self._context.broker.probe.partition_fetched(
                    asked.topic, asked.bytes, is_failed=asked.error_code != ErrorCode.NONE
                )
        return FetchResponse(
            responses=tuple(
                FetchableTopicResponse(topic=topic, partitions=tuple(partitions))
                for topic, partitions in by_topic.items()
            )
        )

    def release(self) -> None:
        """Drop the pins of what was read."""
        for asked in self._partitions:
            asked.release()
        self.bytes = 0

    async def _read(self, asked: _AskedPartition) -> None:
        """Read what the page cache has, on the loop, and what it has not, in a thread."""
        self.bytes -= asked.bytes
        asked.release()
        wanted = asked.wanted
        log = self._context.log_of(asked.topic, wanted.partition, wanted.current_leader_epoch)
        if isinstance(log, ErrorCode):
            asked.refuse(log)
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
                self.was_cold = True
                found = await self._context.broker.cold_reads.run(read)
            asked.take(log, found)
        except StorageError as error:
            asked.refuse(self._context.code_of(error))
            return
        self.bytes += asked.bytes


class _AskedPartition:
    """One partition of a fetch and what was read of it."""

    __slots__ = ("_copy", "_read", "bytes", "error_code", "log", "topic", "wanted")

    def __init__(self, topic: str, wanted: FetchPartition) -> None:
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
    def is_diverging(self) -> bool:
        """Whether the client has to go back before it can be sent anything."""
        return self._read is not None and self._read.diverging_epoch is not None

    def take(self, log: PartitionLog, read: ReadResult | ErrorCode) -> None:
        """Keep what was read."""
        if isinstance(read, ErrorCode):
            self.refuse(read)
            return
        self.log = log
        self._read = read
        size = sum(region.size for region in read.regions)
        if size <= COPIED_BYTES_MAX:
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
