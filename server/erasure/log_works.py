"""The work on logs for erasures: one task for each log, a pass or one reading for all that need a proof.

An attempt that has failed, or a pass that has run, lets the log rest before the next pass; meanwhile the
failure is named as a holder.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from cleaner.pacing.meter import CleaningAborted
from cleaner.pacing.paused import CleaningPaused
from cleaner.pool.pool import CleanerPool
from server.erasure.proofs import Prover
from server.erasure.tracked import Tracked, bound_of
from server.runtime.clock import Clock
from server.runtime.tasks import spawn
from storage.formats.topic_partition import TopicPartition
from storage.log.log import PartitionLog
from storage.threads import loop_thread

_log = logging.getLogger("server.erasure.log_works")

RETRY_SECONDS = 60.0
"""How long a log rests after an attempt that has failed, or has not helped."""
WORKS_MAX = 8
"""So many logs are worked on at a time; the cleaner's threads bound what runs."""


@dataclass(slots=True)
class Wanted:
    """What erasures need of one log."""

    log: PartitionLog
    proofs: list[tuple[Tracked, int]] = field(default_factory=list)
    """Erasures, and the offset below which each needs it. Without one, a pass is wanted."""


@dataclass(slots=True)
class Attempts:
    """The attempts at one log."""

    retry_at: float = 0.0
    failure: str | None = None


@loop_thread
class LogWorks:
    """Owns the tasks."""

    __slots__ = (
        "_all", "_attempts", "_clock", "_on_end", "_pool", "_prover", "_tasks", "_working",
    )  # fmt: skip

    def __init__(
        self,
        pool: CleanerPool,
        prover: Prover,
        clock: Clock,
        erasures: Callable[[], Iterable[Tracked]],
        on_end: Callable[[], None],
    ) -> None:
        """
        Args:
            erasures: returns all erasures.
            on_end: called when a task has ended.
        """
        # Constant after construction
        self._pool = pool
        self._prover = prover
        self._clock = clock
        self._all = erasures
        self._on_end = on_end
        # State
        self._attempts: dict[TopicPartition, Attempts] = {}
        """Of logs that are worked on or rest."""
        self._working: set[TopicPartition] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def stop(self) -> None:
        """Wait until all tasks have ended. Call it after the pool has stopped."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    def may_try(self, log: PartitionLog) -> bool:
        """Returns whether a pass may begin, after one that has failed or has not helped."""
        attempts = self._attempts.get(log.topic_partition)
        return attempts is None or attempts.retry_at <= self._clock.monotonic()

    def failure(self, log: PartitionLog) -> str | None:
        """Returns why the last attempt at a log failed, until the next one may begin."""
        attempts = self._attempts.get(log.topic_partition)
        return None if attempts is None or self.may_try(log) else attempts.failure

    def begin(self, wanted: Wanted) -> None:
        """Begin a pass or a proof over a log, unless one runs or the log rests."""
        partition = wanted.log.topic_partition
        if partition in self._working or len(self._working) >= WORKS_MAX:
            return
        if not wanted.proofs and not self.may_try(wanted.log):
            return
        self._working.add(partition)
        work = self._prove(wanted) if wanted.proofs else self._clean(wanted.log)
        spawn(self._attempt(wanted, work), "erasure work", among=self._tasks)

    async def _attempt(self, wanted: Wanted, work: Awaitable[None]) -> None:
        partition = wanted.log.topic_partition
        attempts = self._attempts.setdefault(partition, Attempts())
        try:
            await work
            attempts.failure = None
        except CleaningPaused:
            attempts.failure = None  # The next look names the pause.
        except Exception as error:  # noqa: BLE001 - any failure is named as a holder
            attempts.failure = str(error) or repr(error)
            attempts.retry_at = self._clock.monotonic() + RETRY_SECONDS
            level = logging.INFO if isinstance(error, CleaningAborted) else logging.WARNING
            _log.log(level, "erasures: %s: %s", partition, attempts.failure)
        finally:
            self._working.discard(partition)
            self._forget_rested()
            for tracked in self._all():
                if tracked.erasure.topic == partition.topic:
                    tracked.rests_for = 0
            self._on_end()

    def _forget_rested(self) -> None:
        """Forget the attempts at logs that may be tried again: some of them are deleted."""
        now = self._clock.monotonic()
        self._attempts = {
            partition: attempts
            for partition, attempts in self._attempts.items()
            if partition in self._working or attempts.retry_at > now
        }

    async def _clean(self, log: PartitionLog) -> None:
        """Run a pass, as `kompakt compact now` would. Where records were left, the log is read again."""
        partition = log.topic_partition
        await self._pool.clean_now(log)
        self._attempts[partition].retry_at = self._clock.monotonic() + RETRY_SECONDS
        for tracked in self._all():
            erasure, number = tracked.erasure, partition.partition
            proof = tracked.proofs.get(number)
            if erasure.topic_id == log.topic_id and proof is not None:
                first = proof.traces.first_offset(erasure.key_hash(log.identity.hash_key) or b"")
                if first < bound_of(erasure, number):
                    del tracked.proofs[number]

    async def _prove(self, wanted: Wanted) -> None:
        """Read a log once for all erasures that need a proof of it."""
        log = wanted.log
        number = log.topic_partition.partition
        states = [each.erasure for each, _ in wanted.proofs]
        hashes = {each.key_hash(log.identity.hash_key) or b"" for each in states}
        bound = max(below for _, below in wanted.proofs)
        proof = await self._prover.prove(log, hashes, bound, self._clock.now_ms())
        for (tracked, _), before in zip(wanted.proofs, states, strict=True):
            if tracked.erasure is before:
                tracked.proofs[number] = proof
        missed = [
            each.id
            for each in states
            if not each.partitions[number].has_tombstone
            and proof.traces.first_offset(each.key_hash(log.identity.hash_key) or b"")
            < each.partitions[number].offset
        ]
        if missed:
            _log.error(
                "erasures %s: the search has missed records in %s, so one of its key sidecars is wrong;"
                " all are removed, and the next pass makes them again",
                ", ".join(missed),
                log.topic_partition,
            )
            await self._prover.drop_key_sidecars(proof)
