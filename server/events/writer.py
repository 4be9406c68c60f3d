"""Writes events to `__compaction_events`, through the ordinary append path.

    offer       an event waits, at most `WAITING_MAX` of them; it never blocks and never raises
    settle      once, before the first event: logs that are gone get a tombstone, and a pass that was
                running when the broker ended gets its end
    append      in batches, each durable before the next one; what cannot be written is tried again

If more events wait than fit, the oldest is lost, and counted: the last state of a log matters most. An
event may be written twice if the disk fails between.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import msgspec

from cleaner.rules.text import count_text
from metrics.cleaner_probe import CleanerCounts
from protocol.records.batch_header import read_header
from protocol.records.record_batch import Record, build_batch
from protocol.wire.errors import ProtocolError
from server.coordination.coordinator_topic import java_abs, java_hash
from server.durability.group_commit import GroupCommit
from server.events.event import Aborted, Event, key_of
from server.events.last_events import last_events
from server.runtime.clock import Clock
from server.runtime.event_wait import wait_at_most
from server.runtime.executors import Executor
from server.runtime.tasks import spawn
from server.topics.topic import EVENTS_TOPIC, Topic, TopicRefused
from server.topics.topics import Topics
from storage.batches.validate import ValidBatch
from storage.files.errors import LogOffline, StorageError
from storage.formats.topic_partition import TopicPartition
from storage.log.appender import Appended
from storage.log.log import PartitionLog
from storage.threads import loop_thread

_log = logging.getLogger("server.events")

WAITING_MAX = 1_000
"""Events that wait to be written."""
BATCH_EVENTS = 20
"""Events of one batch: few enough not to hold the loop."""
SETTLE_LOGS = 500
"""Logs whose last events are looked at in one turn of the loop."""
RETRY_SECONDS = 5.0
UNRECORDED = "its end was not recorded: the broker ended before it did, or wrote no events"
OVERRIDES = {
    "cleanup.policy": "compact",
    "compression.type": "producer",
    "segment.bytes": "8388608",
}
"""Of the topic that the broker creates. Small segments are compacted soon, so that it stays short."""

T = TypeVar("T")

Entry = tuple[TopicPartition, bytes | None]
"""A log, and its event as JSON; None: the log is gone."""


class EventTooLarge(StorageError):
    """An event exceeds the topic's `max.message.bytes`."""


@loop_thread
class EventWriter:
    """Writes while it is enabled. Owned by the broker's cleaner."""

    __slots__ = (
        "_broker", "_clock", "_counts", "_group_commit", "_has_failed", "_has_lost", "_known", "_news",
        "_reading", "_runs", "_stopping", "_task", "_topics", "_waiting",
    )  # fmt: skip

    def __init__(
        self,
        topics: Topics,
        group_commit: GroupCommit,
        counts: CleanerCounts,
        *,
        clock: Clock,
        reading: Executor,
        broker: int,
    ) -> None:
        """
        Args:
            reading: the thread that reads the topic.
            broker: the broker's id.
        """
        # Constant after construction
        self._topics = topics
        self._group_commit = group_commit
        self._counts = counts
        self._clock = clock
        self._reading = reading
        self._broker = broker
        # State
        self._runs: Callable[[TopicPartition], bool] = lambda _: False
        self._waiting: deque[Entry] = deque()
        self._known: set[TopicPartition] = set()
        """The logs of which the topic has an event, or will have one."""
        self._news = asyncio.Event()
        self._stopping: asyncio.Event | None = None
        """Set when the task must end; None while it does not run."""
        self._task: asyncio.Task[None] | None = None
        self._has_failed = self._has_lost = False
        """Whether the last attempt failed, and whether events were lost since the last success."""

    @property
    def is_enabled(self) -> bool:
        """Whether events are taken."""
        return self._stopping is not None

    def start(self, runs: Callable[[TopicPartition], bool]) -> None:
        """Take events from now on, and create the topic if it does not exist.

        Args:
            runs: returns whether a pass over a log runs now.
        """
        assert self._stopping is None
        self._runs = runs
        self._stopping = asyncio.Event()
        self._task = spawn(self._run(self._stopping, self._task), "compaction events")

    def disable(self) -> None:
        """Take no more events. The task writes those that wait, unless the topic cannot take them now.

        It does not wait for the task: a disk that hangs would hold up what the caller does next.
        """
        if self._stopping is not None:
            self._stopping.set()
            self._stopping = None
            self._news.set()
            self._known.clear()

    async def stop(self) -> None:
        """Take no more events, and wait until those that wait are written or lost."""
        self.disable()
        if self._task is not None:
            await asyncio.wait([self._task])
            self._task = None

    def offer(self, log: TopicPartition, event: Event) -> None:
        """Let an event wait to be written; nothing happens unless events are enabled.

        The event of a log that is gone counts as its tombstone.
        """
        if not self.is_enabled:
            return
        if self._exists(log):
            self._known.add(log)
            self._put(log, msgspec.json.encode(event))
        else:
            self.deleted(log)

    def deleted(self, log: TopicPartition) -> None:
        """Let the last event of a log be forgotten, which was deleted with its topic."""
        if self.is_enabled and log in self._known:
            self._known.discard(log)
            self._put(log, None)

    def _exists(self, log: TopicPartition) -> bool:
        topic = self._topics.get(log.topic)
        return topic is not None and log.partition < len(topic.partitions)

    def _put(self, log: TopicPartition, value: bytes | None) -> None:
        if len(self._waiting) >= WAITING_MAX:
            self._waiting.popleft()
            self._lose(1)
        self._waiting.append((log, value))
        self._news.set()

    def _lose(self, count: int) -> None:
        """Count lost events; log the first of several in a row."""
        if count and not self._has_lost:
            _log.warning(
                "%s of %s lost; kompakt_cleaner_events_total counts them",
                count_text(count, "event"),
                EVENTS_TOPIC,
            )
        self._has_lost |= count > 0
        self._counts.events_lost(count)

    # ---------------------------------------------------------------- the task

    async def _run(self, stopping: asyncio.Event, before: asyncio.Task[None] | None) -> None:
        """Write events until `stopping`, once the task before this one has ended."""
        if before is not None:
            await asyncio.wait([before])
        await self._work(stopping)
        if not self.is_enabled:
            self._lose(len(self._waiting))
            self._waiting.clear()

    async def _work(self, stopping: asyncio.Event) -> None:
        is_settled = False
        while True:
            self._news.clear()
            try:
                if not is_settled:
                    await self._settle()
                    is_settled = True
                await self._append_waiting()
                self._has_failed = False
            except Exception as error:  # noqa: BLE001 - events must not end for good
                self._report(error)
                if not stopping.is_set():
                    await wait_at_most(stopping, RETRY_SECONDS)
                    continue
            if stopping.is_set():
                return
            await self._news.wait()

    def _report(self, error: Exception) -> None:
        """Log the first of several failures in a row."""
        if not self._has_failed:
            is_expected = isinstance(error, StorageError | ProtocolError)
            _log.warning(
                "cannot write to %s, will try again: %s",
                EVENTS_TOPIC,
                error if is_expected else repr(error),
                exc_info=None if is_expected else error,
            )
        self._has_failed = True

    async def _append_waiting(self) -> None:
        while self._waiting:
            count = min(BATCH_EVENTS, len(self._waiting))
            some = [self._waiting.popleft() for _ in range(count)]
            try:
                await self._append(some)
            except BaseException:
                self._waiting.extendleft(reversed(some))
                raise
            self._has_lost = False

    async def _settle(self) -> None:
        """Create the topic if it does not exist, and correct what an end of the broker left open.

        Raises:
            StorageError, ProtocolError: the topic cannot be created or read now.
        """
        topic = await self._topic()
        last: dict[TopicPartition, bool] = {}
        for log in topic.logs():
            last |= await self._reading.run(last_events, log)
        for some in _slices(tuple(last.items()), SETTLE_LOGS):
            known = dict(some)
            self._known.update(filter(self._exists, known))
            found = corrections(known, self._exists, self._runs)
            entries = [(log, self._end(log) if has_end else None) for log, has_end in found]
            for batch in _slices(entries, BATCH_EVENTS):
                await self._append(batch)
            await asyncio.sleep(0)

    def _end(self, log: TopicPartition) -> bytes:
        return msgspec.json.encode(
            Aborted(
                topic=log.topic,
                partition=log.partition,
                broker=self._broker,
                time_ms=self._clock.now_ms(),
                seconds=0,
                why=UNRECORDED,
            )
        )

    async def _topic(self) -> Topic:
        """Returns the topic, created if it does not exist. Raises StorageError."""
        topic = self._topics.get(EVENTS_TOPIC)
        if topic is None:
            made = await self._topics.create(EVENTS_TOPIC, partitions_count=1, overrides=OVERRIDES)
            # If a client has created the topic in between, that one is used.
            topic = self._topics.get(EVENTS_TOPIC)
            if topic is None:
                assert isinstance(made, TopicRefused)
                raise StorageError(f"cannot create {EVENTS_TOPIC}: {made.message}")
        if topic.config.is_mirror:
            raise StorageError(f"{EVENTS_TOPIC} is a mirror")
        return topic

    async def _append(self, entries: Sequence[Entry]) -> None:
        """Append entries, and wait until they are durable. Those that are too large are lost.

        Raises:
            StorageError: not all of them are durable; they may be in the log.
        """
        topic = await self._topic()
        by_log: dict[int, list[Entry]] = {}
        for entry in entries:
            number = java_abs(java_hash(str(entry[0]))) % len(topic.partitions)
            by_log.setdefault(number, []).append(entry)
        for number, some in by_log.items():
            log = topic.partitions[number]
            if not isinstance(log, PartitionLog):
                raise LogOffline(str(log.topic_partition), log.offline_reason)
            if not log.new_files.are_made:
                await self._topics.make_files(log)
            await self._append_to(log, some)

    async def _append_to(self, log: PartitionLog, entries: Sequence[Entry]) -> None:
        now_ms = self._clock.now_ms()
        try:
            data = batch_of(entries, now_ms, bytes_max=log.config.max_message_bytes)
        except EventTooLarge:
            if len(entries) == 1:
                self._lose(1)
                return
            for entry in entries:
                await self._append_to(log, [entry])
            return
        valid = ValidBatch(read_header(data), memoryview(data))
        appended = log.appender.append_as_leader(valid, now_ms=now_ms)
        assert isinstance(appended, Appended), "only producers' batches are refused"
        self._group_commit.appended(log)
        if not await self._group_commit.durable(log, appended.next_offset):
            reason = log.offline_reason or "the topic was deleted"
            raise LogOffline(str(log.topic_partition), reason)
        self._counts.events_written(len(entries))


def batch_of(entries: Sequence[Entry], now_ms: int, *, bytes_max: int) -> bytearray:
    """Returns a batch of entries. Raises EventTooLarge."""
    records = [
        Record(offset=at, timestamp=now_ms, key=key_of(log), value=value)
        for at, (log, value) in enumerate(entries)
    ]
    data = build_batch(records)
    if len(data) > bytes_max:
        raise EventTooLarge(f"its batch exceeds max.message.bytes={bytes_max} of the topic")
    return data


def corrections(
    last: Mapping[TopicPartition, bool],
    exists: Callable[[TopicPartition], bool],
    runs: Callable[[TopicPartition], bool],
) -> Iterable[tuple[TopicPartition, bool]]:
    """Yields the logs whose last event is not true: pure.

    Args:
        last: whether a pass runs, by the last event of each log.
        exists, runs: whether a log exists, and whether a pass over it runs.

    Yields:
        The log, and whether its last pass has ended; if not, the log is gone.
    """
    for log, is_open in last.items():
        if not exists(log):
            yield log, False
        elif is_open and not runs(log):
            yield log, True


def _slices(items: Sequence[T], count: int) -> Iterator[Sequence[T]]:
    return (items[start : start + count] for start in range(0, len(items), count))
