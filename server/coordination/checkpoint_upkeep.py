"""Makes the coordinators' checkpoints while the broker runs, and before it stops.

A task looks at each partition every `LOOK_SECONDS`. It makes the checkpoints that are due, one at a
time, in a thread of its own, within the cleaner's I/O budgets. `checkpoints.py` decides when one is due.
A follower that needs one gets it at once (`newest`), and downloads it (`checkpoint_offers.py`). On a
fenced broker that is all: no coordinator reads the partitions there, so no checkpoint is due.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from cleaner.checkpoints.making import CheckpointOrder, make_checkpoint
from cleaner.pacing.meter import CleaningAborted, PassMeter
from cleaner.pacing.probe import SilentProbe
from cleaner.pacing.throttle import Throttle
from cleaner.rules.text import count_text, size_text
from metrics.facts import CheckpointFacts
from protocol.wire.error_codes import ErrorCode
from protocol.wire.errors import ProtocolError
from replog.trigger import CompactionSettings
from server.coordination.checkpoint_offers import CheckpointOffers, OfferId
from server.coordination.coordinator_topic import CoordinatorTopic
from server.coordination.partition_loads import PartitionLoads
from server.runtime.executors import Executor
from server.runtime.tasks import call_later, guarded, spawn
from storage.files.errors import StorageError
from storage.log.log import PartitionLog
from storage.threads import any_thread, loop_thread

_log = logging.getLogger("server.coordination.checkpoint_upkeep")

LOOK_SECONDS = 10.0
STOPPING_SECONDS = 10.0
"""How long a clean stop makes checkpoints. Without one of the others the next start only reads more."""
LOGS_PER_TURN = 50
"""How many logs a look checks before it yields the loop."""


@dataclass(frozen=True, slots=True)
class CheckpointedTopic:
    """A coordinator's topic with its partitions' loads: only what is served gets checkpoints."""

    topic: CoordinatorTopic
    loads: PartitionLoads | None
    """None on a fenced broker, which loads nothing: then a checkpoint is made only for a follower."""

    def error(self, partition: int) -> ErrorCode:
        """Returns why a follower gets no checkpoint of a partition now; NONE if it gets one."""
        return ErrorCode.NONE if self.loads is None else self.loads.error(partition)

    def logs(self) -> Iterator[PartitionLog]:
        """Yields the logs of the partitions that are served."""
        served = 0 if self.loads is None else self.topic.partitions_count
        for partition in range(served):
            if self.error(partition) is ErrorCode.NONE:
                with suppress(StorageError):
                    yield self.topic.log_of(partition)


@any_thread
def checkpoint_facts(topic: CoordinatorTopic) -> Iterator[tuple[int, CheckpointFacts]]:
    """Yields the facts about each partition with a checkpoint, or with something to load without."""
    states = topic.checkpoints.states()
    for partition in range(topic.partitions_count):
        with suppress(StorageError):
            state, log = states.get(partition), topic.log_of(partition)
            replay_seconds = topic.checkpoints.replay_ms(log) / 1000
            if state is None and not replay_seconds:
                continue
            yield (
                partition,
                CheckpointFacts(
                    replay_seconds=replay_seconds,
                    size=None if state is None else state.size,
                    end_offset=None if state is None else state.end_offset,
                    seconds=None if state is None else state.seconds,
                ),
            )


@loop_thread
class CheckpointUpkeep:
    """The task of one broker. Its methods are called on the loop."""

    __slots__ = (
        "_executor", "_making", "_memory_bytes", "_settings", "_stop", "_stopping", "_task",
        "_throttle", "_topics", "offers",
    )  # fmt: skip

    def __init__(
        self,
        topics: Sequence[CheckpointedTopic],
        settings: CompactionSettings,
        executor: Executor,
        *,
        throttle: Throttle,
        memory_bytes: int,
        offers: CheckpointOffers,
    ) -> None:
        """Start to look.

        Args:
            executor: the thread that makes the checkpoints.
            throttle: the cleaner's, so that its budgets hold for both.
            memory_bytes: the most memory that a checkpoint's keys may take while it is made.
        """
        # Constant after construction
        self._topics = topics
        self._settings = settings
        self._executor = executor
        self._throttle = throttle
        self._memory_bytes = memory_bytes
        self.offers = offers
        """Those that followers download."""
        self._making: dict[PartitionLog, asyncio.Task[OfferId | None]] = {}
        """Checkpoints that are being made for followers."""
        self._stop = threading.Event()
        """Ends the one that is being made within a piece."""
        self._stopping = asyncio.Event()
        self._task = spawn(self._look_again_and_again(), "coordinator checkpoints")

    async def stop(self) -> None:
        """Make the checkpoints that are due at a clean stop, as many as fit into `STOPPING_SECONDS`.

        The coordinators must have stopped.
        """
        self._stop.set()
        self._stopping.set()
        await self._task
        await asyncio.gather(*self._making.values(), return_exceptions=True)
        await self.offers.close()
        self._stop.clear()
        self._throttle = Throttle(clock=time.monotonic)
        timer = call_later(STOPPING_SECONDS, "coordinator checkpoints", self._stop.set)
        for its, log in self._all_logs():
            if log.offline_reason is None and its.topic.checkpoints.is_due_at_stop(
                log, self._settings
            ):
                await self._make(its.topic, log)
            if self._stop.is_set():
                _log.info("stopping: no time is left for further checkpoints of the coordinators")
                break
        timer.cancel()

    async def look(self) -> None:
        """Make the checkpoints that are due now."""
        for number, (its, log) in enumerate(self._all_logs(), start=1):
            if self._stopping.is_set():
                return
            if log.offline_reason is None and its.topic.checkpoints.is_due(log, self._settings):
                await self._make(its.topic, log)
            if number % LOGS_PER_TURN == 0:
                await asyncio.sleep(0)

    def served(self, name: str, partition: int) -> tuple[CoordinatorTopic, ErrorCode] | None:
        """Returns a coordinator's topic by its name, and the partition's error; None if it is none."""
        for each in self._topics:
            if each.topic.name == name:
                return each.topic, each.error(partition)
        return None

    async def newest(
        self, topic: CoordinatorTopic, log: PartitionLog, end_min: int, patience_s: float
    ) -> asyncio.Task[OfferId | None]:
        """Open the partition's checkpoint for a follower, after making one if it ends before `end_min`.

        Followers that ask for the same partition meanwhile wait for the same one.

        Args:
            patience_s: how long to wait for it at most.

        Returns:
            A task, which may not be over yet; its result is None if there is no such checkpoint.
        """
        task = self._making.get(log)
        if task is None:
            task = self._making[log] = spawn(
                self._newest(topic, log, end_min), "checkpoint for a follower"
            )
            task.add_done_callback(lambda _: self._making.pop(log, None))
        await asyncio.wait([task], timeout=patience_s)
        return task

    async def _newest(
        self, topic: CoordinatorTopic, log: PartitionLog, end_min: int
    ) -> OfferId | None:
        found = await self.offers.open(log, end_min, is_new=False)
        while found is None and not self._stopping.is_set():
            if not await self._make(topic, log):
                return None
            # If the keys did not fit into the memory, it ends too early, and the next one later.
            found = await self.offers.open(log, end_min, is_new=True)
        return found

    def _all_logs(self) -> Iterator[tuple[CheckpointedTopic, PartitionLog]]:
        for each in self._topics:
            for log in each.logs():
                yield each, log

    async def _look_again_and_again(self) -> None:
        while not self._stopping.is_set():
            with guarded("coordinator checkpoints"):
                await self.look()
                await self.offers.expire()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), LOOK_SECONDS)

    async def _make(self, topic: CoordinatorTopic, log: PartitionLog) -> bool:
        """Make one checkpoint. If that fails, the last one stays, and the next look tries again.

        Returns whether there is a new one.
        """
        view = log.cleaning_view(as_if_rolled=True)
        order = CheckpointOrder(
            log=log,
            view=view,
            has_commits=topic.checkpoints.has_commits,
            memory_bytes=self._memory_bytes,
        )
        meter = PassMeter(
            throttle=self._throttle,
            probe=SilentProbe(),
            sleep=self._stop.wait,
            is_stale=lambda: log.generation != view.generation,
        )
        started = time.monotonic()
        try:
            made = await self._executor.run(make_checkpoint, order, meter)
        except CleaningAborted:
            return False
        except (ProtocolError, StorageError, MemoryError) as error:
            if log.offline_reason is None:
                _log.warning("%s: cannot make a checkpoint: %s", log.topic_partition, error)
            return False
        if made is None:
            return False
        seconds = time.monotonic() - started
        topic.checkpoints.made(log.topic_partition.partition, made, seconds)
        _log.info(
            "%s: made a checkpoint of %s up to offset %d: %s in %.1f s",
            log.topic_partition,
            count_text(made.records, "record"),
            made.end_offset,
            size_text(made.size),
            seconds,
        )
        return True
