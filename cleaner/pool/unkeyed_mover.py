"""Hands records without a key from the thread of a pass to the event loop, which appends them.

The thread waits for each chunk until it is durable, so at most one is on its way; it looks five times a
second whether the pass must stop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import wait
from dataclasses import replace
from typing import Protocol

from cleaner.pacing.clock import Clock
from cleaner.pacing.meter import PassMeter
from cleaner.rules.unkeyed import with_origin
from protocol.records.record import Record
from protocol.records.record_batch import build_batch
from storage.formats.topic_partition import TopicPartition
from storage.log.log import PartitionLog

LOOK_SECONDS = 0.2


class UnkeyedTopics(Protocol):
    """The topics that take records without a key. Methods run on the event loop."""

    async def append(self, name: str, origin: TopicPartition, batch: bytearray) -> None:
        """Append a batch to a topic; it is on the disk when this returns.

        Raises:
            MoveRefused: it may or may not be in the topic.
            ChunkTooLarge: nothing was appended.
        """

    async def check(self, name: str, origin: TopicPartition) -> None:
        """Raises MoveRefused if the topic would take nothing now."""


class LoopMover:
    """Moves the records of one pass. `cleaner.passes.unkeyed.Mover`."""

    __slots__ = ("_clock", "_is_rehearsal", "_log", "_loop", "_meter", "_name", "_topics")

    def __init__(
        self,
        topics: UnkeyedTopics,
        name: str,
        log: PartitionLog,
        meter: PassMeter,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        is_rehearsal: bool,
    ) -> None:
        """
        Args:
            name: the topic that takes the records.
            is_rehearsal: append nothing, only find out whether the topic would take it.
        """
        # Constant after construction.
        self._topics = topics
        self._name = name
        self._log = log
        self._meter = meter
        self._loop = loop
        self._clock = clock
        self._is_rehearsal = is_rehearsal

    def move(self, records: Sequence[Record]) -> None:
        """See `Mover.move`. In a rehearsal nothing is appended."""
        name, origin = self._name, self._log.topic_partition
        if self._is_rehearsal:
            self._run(lambda: self._topics.check(name, origin))
            return
        batch = self._batch(records)
        self._meter.wrote(len(batch))
        self._run(lambda: self._topics.append(name, origin, batch))

    def _batch(self, records: Sequence[Record]) -> bytearray:
        """Returns a batch of the records as they are moved."""
        identity, now_ms = self._log.identity, self._clock.now_ms()
        origin, topic_id = identity.topic_partition, identity.topic_id
        return build_batch(
            [
                replace(with_origin(each, origin, topic_id, now_ms=now_ms), offset=number)
                for number, each in enumerate(records)
            ]
        )

    def _run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run work on the event loop, which also begins there, and wait for its end.

        Raises what the work raises, and CleaningAborted if the pass must stop before it has ended.
        """

        async def begun() -> None:
            await work()

        future = asyncio.run_coroutine_threadsafe(begun(), self._loop)
        try:
            while not wait([future], timeout=LOOK_SECONDS).done:
                self._meter.check()
        finally:
            future.cancel()  # Without effect once it is done.
        future.result()
