"""The reads of one fetch: each of its partitions, and again those whose logs change while it waits."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from functools import partial

from protocol.messages.fetch import FetchPartition, FetchRequest
from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Epoch, Offset
from server.fetching.asked_partitions import AskedPartition, AskedPartitions, changed
from server.fetching.watch import Watch
from server.handlers.shared.metadata_log import NO_NODE, follower_id, is_on_internal_listener
from server.lookup.view_reads import UnreadableView, ViewRead
from server.request_context import RequestContext
from server.views.latest_view import other_id
from storage.files.errors import NotCached, StorageError
from storage.log.log import PartitionLog
from storage.segment.reader import Isolation, ReadResult

EPOCHS_SINCE = 12

PARTITIONS_PER_TURN = 64
"""A fetch of up to this many partitions is read in one turn of the loop, in about a millisecond."""


class PartitionReads:
    """What was read for one fetch so far.

    Holds the pins and copies of its reads until the answer has taken them over. `free` drops the others.
    """

    __slots__ = (
        "_asked",
        "_bytes_max",
        "_context",
        "_copied_bytes",
        "_holding",
        "_is_handed_over",
        "_request",
        "_with_empty_batches",
        "bytes",
        "done",
        "has_fault",
        "isolation",
    )

    def __init__(
        self, asked: AskedPartitions, request: FetchRequest, context: RequestContext
    ) -> None:
        # Constant after construction
        self._asked = asked
        self._request = request
        self._context = context
        self._bytes_max = min(request.max_bytes, context.broker.config.fetch_max_bytes)
        if context.usage is not None:
            self._bytes_max = context.usage.fetch_bytes_max(self._bytes_max)
        committed = request.isolation_level == Isolation.READ_COMMITTED
        self.isolation = Isolation.READ_COMMITTED if committed else Isolation.READ_UNCOMMITTED
        self._with_empty_batches = _takes_empty_batches(context)
        # State: bytes and _copied_bytes are sums over the partitions; the copied bytes are counted in
        # the memory for answers. _holding are the partitions with records.
        self.done: dict[AskedPartition, None] = {}
        """The partitions that were read, in order."""
        self.bytes = 0
        self._copied_bytes = 0
        self.has_fault = False
        """Whether a partition had an error or diverged."""
        self._holding: dict[AskedPartition, None] = {}
        self._is_handed_over = False

    @property
    def is_ready(self) -> bool:
        """Whether to answer without further waiting."""
        wanted = min(self._request.min_bytes, self._bytes_max)
        return (
            self.bytes >= wanted
            or self._request.max_wait_ms <= 0
            or self.has_fault
            or not self._asked
        )

    async def read_all(self, *, skips_unchanged: bool) -> None:
        """Read the partitions in order.

        Args:
            skips_unchanged: whether to leave out those of which the session's client knows everything.
        """
        pace, is_long = self._context.pace, len(self._asked) > PARTITIONS_PER_TURN
        async for portion in self._portions(self._asked.in_order()):
            for asked in changed(portion) if skips_unchanged else portion:
                if is_long and pace.is_over:
                    await pace.rest()
                await self._read(asked)

    async def cover_all(self, watch: Watch) -> None:
        """Let a new watch cover the partitions, because the fetch is about to wait."""
        group_commit = self._context.broker.group_commit
        async for portion in self._portions(self._asked.in_order()):
            watch.cover(portion)
            for asked in portion:
                if asked.log is not None:
                    group_commit.expect_reader(asked.log)

    async def cover_done(self, watch: Watch) -> None:
        """Let the watch of the session cover what was read; it covers the others already."""
        async for portion in self._portions(self.done):
            watch.cover(portion)

    async def cover_changed(self, watch: Watch) -> None:
        """Let the watch of the session wake the fetch for what has changed and was not read since."""
        async for portion in self._portions(watch.take_changed()):
            watch.cover(portion)
        self._context.broker.group_commit.expect_readers()

    async def read_again(self, partitions: Iterable[AskedPartition]) -> None:
        """Read partitions whose logs have changed again."""
        pace = self._context.pace
        for asked in partitions:
            if pace.is_over:
                await pace.rest()
            await self._read(asked)

    def _portions(self, all_: Iterable[AskedPartition]) -> AsyncIterator[list[AskedPartition]]:
        """Yields the partitions in order, and rests between two portions if the slice is over."""
        partitions = list(all_)
        starts = range(0, len(partitions), PARTITIONS_PER_TURN)
        return self._context.pace.paced(
            partitions[start : start + PARTITIONS_PER_TURN] for start in starts
        )

    def hand_over(self) -> None:
        """Leave the pins and copies to the answer; from now on the connection counts their bytes."""
        self._count_copies(-self._copied_bytes)
        self._is_handed_over = True

    async def free(self) -> None:
        """Drop the pins and copies that no answer has taken over, and all collections, in slices.

        The fetch cannot be used afterwards.
        """
        self._count_copies(-self._copied_bytes)
        pace, holding = self._context.pace, self._holding
        is_long = len(holding) > PARTITIONS_PER_TURN
        drop = AskedPartition.forget_read if self._is_handed_over else AskedPartition.release
        try:
            while holding:
                if is_long and pace.is_over:
                    await pace.rest()
                drop(holding.popitem()[0])
        finally:
            for asked in holding:
                drop(asked)
        if len(self.done) > PARTITIONS_PER_TURN:
            await pace.empty(self.done)

    async def _read(self, asked: AskedPartition) -> None:
        """Read one partition: on the loop if the page cache has the data, else in a thread."""
        self.done[asked] = None
        if asked.bytes:
            self._drop(asked)
        log = self._log_of(asked)
        if isinstance(log, ErrorCode):
            asked.refuse(log)
            self.has_fault = True
            return
        if asked.topic.is_view:
            await self._read_view(asked, log)
            return
        wanted = asked.wanted
        if asked.topic.is_followed and wanted.replica_directory_id.int:
            self._note_follower(asked.topic.name, wanted)
        read = partial(
            log.reader.read,
            Offset(wanted.fetch_offset),
            max_bytes=max(0, min(wanted.partition_max_bytes, self._bytes_max - self.bytes)),
            whole_first_batch=self.bytes == 0,
            isolation=self.isolation,
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
        self._count(asked, found)

    async def _read_view(self, asked: AskedPartition, log: PartitionLog) -> None:
        """Read one partition of a view."""
        wanted, has_room = asked.wanted, self._context.broker.answers.has_room
        bytes_left = max(0, min(wanted.partition_max_bytes, self._bytes_max - self.bytes))
        context = self._context
        found: ViewRead | ErrorCode
        try:
            found = await context.broker.view_reads.read(
                log,
                Offset(wanted.fetch_offset),
                bytes_max=bytes_left if has_room else 0,
                whole_first_batch=self.bytes == 0 and has_room,
                last_fetched_epoch=Epoch(wanted.last_fetched_epoch),
                with_tombstones=not asked.topic.is_in_snapshot,
            )
        except UnreadableView as error:
            context.broker.warnings.say(context.connection, str(error))
            found = error.error_code
        except StorageError as error:
            found = context.log_failure(error)
        if isinstance(found, ErrorCode):
            self._count(asked, found)
            return
        if context.usage is not None:
            context.usage.add_work(found.work_seconds)
        if found.read.regions:
            asked.store(log, found.read, may_copy=context.broker.answers.has_room)
        else:
            asked.store_latest(log, found.read, found.records)
        self._count(asked, found.read)

    def _count(self, asked: AskedPartition, found: ReadResult | ErrorCode) -> None:
        """Count what was read of a partition and is stored in it."""
        if isinstance(found, ErrorCode):
            asked.refuse(found)
            self.has_fault = True
        elif found.diverging_epoch is not None:
            self.has_fault = True
        self.bytes += asked.bytes
        self._count_copies(asked.copied_bytes)
        if asked.bytes:
            self._holding[asked] = None

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
        self._holding.pop(asked, None)

    def _log_of(self, asked: AskedPartition) -> PartitionLog | ErrorCode:
        topic, wanted = asked.topic, asked.wanted
        if topic.id is not None and not topic.name:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if not topic.may_read:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        is_topic = not (topic.is_view or topic.is_in_snapshot)
        log_of = self._context.log_of if is_topic else self._context.readable_log_of
        log = log_of(topic.name, wanted.partition, wanted.current_leader_epoch)
        if topic.id is None or topic.is_in_snapshot:
            return log  # A later snapshot has another name.
        # The topic may have been deleted meanwhile, and another one may have its name. As in Kafka, the
        # other one's epochs do not matter then.
        found = log
        if isinstance(log, ErrorCode):
            found = log_of(topic.name, wanted.partition)
        topic_id = other_id(topic.id) if topic.is_view else topic.id
        if isinstance(found, PartitionLog) and found.topic_id != topic_id:
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
