"""Fetch (key 1), v4-v18.

Behaviour: answers when `min_bytes` are available, when a partition has an error or diverges, or after
`max_wait_ms`. Until then the fetch is parked, and every log that it names wakes it. The size limits are
soft: the first batch of the first non-empty partition is returned whole (KIP-74). Records are sent as
regions of segment files: never decoded, and copied only if they are small. A client whose
last_fetched_epoch shows that its log diverges from this one gets `diverging_epoch` and no records. A
read_committed consumer gets the records below the last stable offset, with the list of aborted
transactions among them. Records that are not in the page cache are first read in a thread; the
connection's next request waits for that.
A consumer beyond its quota gets an answer without topics, and its connection pauses (KIP-219).
A partition that is named more than once is read and answered once, at the position where it is named
first, with the parameters of the last one, as in Kafka.
Versions: v5 log_start_offset · v7 sessions (KIP-227) · v9 current_leader_epoch (KIP-320) · v11
rack_id · v12 last_fetched_epoch (KIP-595) · v13 topic ids (KIP-516, docs/design/topic-ids.md) · v15
to v18 fields that only replicas send, and node_endpoints, which a single broker does not need.
A fetch of partition 0 of `__cluster_metadata`, v12 and later, on the internal listener, is a follower's
(`server/handlers/shared/metadata_log.py`). On that listener a follower's permission, ClusterAction, is
also enough for the coordinators' topics, and from v12 on, since which followers can say their last
epoch, an answer may begin with batches without records, as in Kafka: they carry the last sequences of
producers. Otherwise these are only sent behind a batch with records, because kafkajs, which speaks v11,
asks for ever when it gets nothing else.
`server/shortcut/fetch.py` answers the simplest requests before they get here, by the same rules.
Not implemented: sessions (declined with session id 0, so clients send all partitions each time);
fetching from followers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from uuid import UUID

from protocol.messages.fetch import (
    IDS_SINCE,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from protocol.wire.error_codes import ErrorCode
from protocol.wire.lazy_array import lazy_array
from protocol.wire.numbers import Epoch, Offset
from server.durability.fetch_waiters import ParkedFetch
from server.handlers.shared.checkpoint_pieces import COORDINATOR_TOPICS
from server.handlers.shared.fetched_partition import AskedPartition, AskedTopic, refused_partition
from server.handlers.shared.metadata_log import (
    NO_NODE,
    fetch_entries,
    follower_id,
    is_on_internal_listener,
    may_follow,
    names_only_the_metadata,
)
from server.handlers.shared.topic_ids import name_of_topic
from server.request_context import RequestContext
from server.security.acls import Operation, ResourceType
from storage.files.errors import NotCached, StorageError
from storage.log.log import PartitionLog
from storage.segment.reader import Isolation

EPOCHS_SINCE = 12

PARTITIONS_PER_TURN = 64
"""A fetch of up to this many partitions is read in one turn of the loop, in about a millisecond."""

UNKNOWN_TOPIC = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
)
"""Errors that metrics do not count by topic, because clients choose the names of such topics."""


async def handle(request: FetchRequest, context: RequestContext) -> FetchResponse | None:
    """Read, wait until there is enough data, answer."""
    if request.session_id != 0 and request.session_epoch > 0:
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, responses=())
    if names_only_the_metadata(request, context) and may_follow(context):
        return await fetch_entries(request, context)
    fetch = _Fetch(request, context)
    try:
        await fetch.read_all()
        if not fetch.is_ready:
            await _wait(fetch, request.max_wait_ms / 1000, context)
        if context.connection.is_lost:
            fetch.release()
            return None
        if context.usage is not None and not context.usage.charge_fetch(fetch.bytes):
            fetch.release()
            return FetchResponse(responses=())
        return await fetch.response()
    except BaseException:
        fetch.release()
        raise
    finally:
        if fetch.is_long:
            await fetch.free()


def refuse(
    request: FetchRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> FetchResponse:
    return FetchResponse(
        error_code=error_code,
        responses=lazy_array(
            lambda topic: FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=lazy_array(
                    lambda each: refused_partition(each.partition, error_code), topic.partitions
                ),
            ),
            request.topics,
        ),
    )


async def _wait(fetch: _Fetch, timeout_s: float, context: RequestContext) -> None:
    """Wait until there is enough data, the timeout passes or the connection ends."""
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
            await fetch.read_again(parked.take_woken())
    finally:
        connection.park(None)
        parked.leave()


class _Fetch:
    """One fetch request: its partitions, and what was read from each so far.

    Holds the pins of its reads until `response` passes them on or `release` drops them.
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
        "_with_empty_batches",
        "bytes",
        "has_fault",
        "is_long",
    )

    def __init__(self, request: FetchRequest, context: RequestContext) -> None:
        # Constant after construction
        self._request = request
        self._context = context
        self.is_long = _is_long(request.topics)
        """Whether it names so many partitions that it must run in slices."""
        self._bytes_max = min(request.max_bytes, context.broker.config.fetch_max_bytes)
        if context.usage is not None:
            self._bytes_max = context.usage.fetch_bytes_max(self._bytes_max)
        committed = request.isolation_level == Isolation.READ_COMMITTED
        self._isolation = Isolation.READ_COMMITTED if committed else Isolation.READ_UNCOMMITTED
        self._with_empty_batches = _takes_empty_batches(context)
        # Constant once `_collect_partitions` is done: topics by name or id, partitions in the order
        # in which the request first names them.
        self._topics: dict[str | UUID, AskedTopic] = {}
        self._partitions: list[AskedPartition] = []
        self._watched: dict[PartitionLog, AskedPartition] = {}
        # State: bytes and _copied_bytes are sums over the partitions; the copied bytes are counted in
        # the memory for answers. _pinned are the partitions that hold a pin.
        self.bytes = 0
        self._copied_bytes = 0
        self.has_fault = False
        """Whether a partition had an error or diverged."""
        self._pinned: set[AskedPartition] = set()

    @property
    def is_ready(self) -> bool:
        """Whether to answer without further waiting."""
        wanted = min(self._request.min_bytes, self._bytes_max)
        return (
            self.bytes >= wanted
            or self._request.max_wait_ms <= 0
            or self.has_fault
            or not self._partitions
        )

    async def read_all(self) -> None:
        """Read every partition in the order of the request."""
        await self._collect_partitions()
        pace, is_long = self._context.pace, self.is_long
        for asked in self._partitions:
            if is_long and pace.is_over:
                await pace.rest()
            await self._read(asked)

    async def watch(self, parked: ParkedFetch) -> None:
        """Watch every log that was read; wake the fetch for logs that have changed since the read."""
        pace, group_commit = self._context.pace, self._context.broker.group_commit
        for asked in self._partitions:
            if pace.is_over:
                await pace.rest()
            if asked.log is not None:
                self._watched[asked.log] = asked
                parked.watch(asked.log)
                group_commit.expect_reader(asked.log)
                if asked.has_changed:
                    parked.wake(asked.log)

    async def read_again(self, logs: Iterable[PartitionLog]) -> None:
        """Read the partitions of the changed logs again."""
        pace = self._context.pace
        for log in logs:
            if pace.is_over:
                await pace.rest()
            await self._read(self._watched[log])

    async def response(self) -> FetchResponse:
        """Returns the answer with everything that was read; it takes over the pins of the regions."""
        pace, is_long = self._context.pace, self.is_long
        probe = self._context.broker.probe
        by_topic: dict[AskedTopic, list[PartitionData]] = {}
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
        # From now on the connection counts these bytes.
        self._count_copies(-self._copied_bytes)
        return FetchResponse(responses=tuple(responses))

    def release(self) -> None:
        """Drop the pins and copies of everything that was read."""
        self._count_copies(-self._copied_bytes)
        for asked in self._pinned:
            asked.release()
        self._pinned.clear()

    async def free(self) -> None:
        """Free its collections in slices. The fetch cannot be used afterwards."""
        pace = self._context.pace
        await pace.empty(self._watched)
        await pace.empty(self._partitions)
        await pace.empty(self._topics)

    async def _collect_partitions(self) -> None:
        """Collect the partitions that the request names, each once."""
        pace = self._context.pace
        for topic in self._request.topics:
            if not self.is_long:
                self._add_partitions(topic, topic.partitions)
                continue
            for start in range(0, max(len(topic.partitions), 1), PARTITIONS_PER_TURN):
                if pace.is_over:
                    await pace.rest()
                portion = topic.partitions[start : start + PARTITIONS_PER_TURN]
                self._add_partitions(topic, portion)

    def _add_partitions(self, topic: FetchTopic, partitions: Sequence[FetchPartition]) -> None:
        has_ids = self._context.header.api_version >= IDS_SINCE
        key = topic.topic_id if has_ids else topic.topic
        asked = self._topics.get(key)
        if asked is None:
            name = name_of_topic(topic.topic_id, self._context) if has_ids else topic.topic
            is_followed = _may_follow(name, self._context)
            may_read = not name or is_followed or _may_read(name, self._context)
            topic_id = topic.topic_id if has_ids else None
            asked = self._topics[key] = AskedTopic(
                name, topic_id, may_read=may_read, is_followed=is_followed
            )
        places, known = asked.places, self._partitions
        for wanted in partitions:
            place = places.setdefault(wanted.partition, len(known))
            if place == len(known):
                known.append(AskedPartition(asked, wanted))
            else:
                known[place].wanted = wanted

    async def _read(self, asked: AskedPartition) -> None:
        """Read one partition: on the loop if the page cache has the data, else in a thread."""
        if asked.bytes:
            self._drop(asked)
        log = self._log_of(asked)
        if isinstance(log, ErrorCode):
            asked.refuse(log)
            self.has_fault = True
            return
        wanted = asked.wanted
        if asked.topic.is_followed and wanted.replica_directory_id.int:
            self._note_follower(asked.topic.name, wanted)
        read = partial(
            log.reader.read,
            Offset(wanted.fetch_offset),
            max_bytes=max(0, min(wanted.partition_max_bytes, self._bytes_max - self.bytes)),
            whole_first_batch=self.bytes == 0,
            isolation=self._isolation,
            last_fetched_epoch=Epoch(wanted.last_fetched_epoch),
            with_empty_batches=self._with_empty_batches,
        )
        try:
            try:
                found = read(cached_only=True)
            except NotCached:
                found = await self._context.broker.cold_reads.run(read)
            if not isinstance(found, ErrorCode):
                asked.store(log, found, may_copy=self._context.broker.answers.has_room)
        except StorageError as error:
            found = self._context.log_failure(error)
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

    def _note_follower(self, name: str, wanted: FetchPartition) -> None:
        connection, directory = self._context.connection, wanted.replica_directory_id
        self._context.broker.followers.fetched(
            follower_id(directory, NO_NODE),
            connection.client_host,
            name,
            wanted.partition,
            wanted.fetch_offset,
        )

    def _drop(self, asked: AskedPartition) -> None:
        """Drop what was read of a partition, because it is read again."""
        self.bytes -= asked.bytes
        self._count_copies(-asked.copied_bytes)
        asked.release()
        self._pinned.discard(asked)

    def _log_of(self, asked: AskedPartition) -> PartitionLog | ErrorCode:
        topic, wanted = asked.topic, asked.wanted
        if topic.id is not None and not topic.name:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if not topic.may_read:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        log = self._context.log_of(topic.name, wanted.partition, wanted.current_leader_epoch)
        if topic.id is not None and isinstance(log, PartitionLog) and log.topic_id != topic.id:
            # The topic was deleted meanwhile, and a new topic has its name.
            return ErrorCode.INCONSISTENT_TOPIC_ID
        return log

    def _count_copies(self, change: int) -> None:
        """Change how many copied bytes this fetch counts in the memory for answers."""
        self._copied_bytes += change
        if change > 0:
            self._context.broker.answers.hold(change)
        elif change < 0:
            self._context.broker.answers.give_back(-change)


def _takes_empty_batches(context: RequestContext) -> bool:
    """Returns whether an answer may begin with batches without records, because a follower may ask."""
    return context.header.api_version >= EPOCHS_SINCE and is_on_internal_listener(context)


def _may_follow(name: str, context: RequestContext) -> bool:
    """Returns whether a topic is a coordinator's, and the client may follow it as a standby."""
    may_be_followed = name in COORDINATOR_TOPICS and is_on_internal_listener(context)
    # Quiet, because consumers may read these topics there too.
    return may_be_followed and context.may(
        Operation.CLUSTER_ACTION, ResourceType.CLUSTER, quiet=True
    )


def _may_read(name: str, context: RequestContext) -> bool:
    return context.may(Operation.READ, ResourceType.TOPIC, name)


def _is_long(topics: Sequence[FetchTopic]) -> bool:
    if len(topics) > PARTITIONS_PER_TURN:
        return True
    return sum([len(topic.partitions) for topic in topics]) > PARTITIONS_PER_TURN
