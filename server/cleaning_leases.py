"""Who else cleans which log, and until when: leases, each with a plan and a folder.

    begun -> renewed ... -> committed (a job)        the broker verifies, swaps, and the lease ends
                         -> ended                    by who has it, or because it was not renewed, the
                                                     log changed, cleaning was paused, the broker stops

While there is a lease, the pool's passes keep off its log. Whatever ends it removes its folder
`<log.dirs entry>/leases/<id>`, and the broker's own cleaner takes the log again. Nothing of a lease
outlives the process but that folder, which the next start removes.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

from cleaner.cleaning_plan import CleaningPlan
from cleaner.meter import CleaningAborted
from cleaner.pool import CleanerPool
from cleaner.remote_plan import RemotePlan, RemoteResult
from cleaner.report import PassReport
from cleaner.running import RunningPass
from cleaner.travelling_plan import remote_plan
from server.compaction_jobs import CompactionJobs, Job
from server.executors import Executor
from server.tasks import call_later, spawn
from storage.errors import StorageError
from storage.files import FileSystem
from storage.log import PartitionLog

_log = logging.getLogger("server.cleaning_leases")


LOOK_SECONDS = 1.0
"""How soon it is noticed that nothing can come of a lease any more: a topic that is deleted and made
again has the same name, and its log must not wait for others."""

CHANGED = "the log was truncated, deleted or reconfigured"


class LeaseRefused(Exception):
    """There is no such lease, or it is being committed already. A sentence for who asked."""


@dataclass(slots=True)
class Lease:
    """A log that another process cleans."""

    log: PartitionLog
    plan: CleaningPlan
    running: RunningPass
    """Keeps the pool's passes off."""
    remote: RemotePlan
    """What the other process was told."""
    ends_at: float = 0.0
    """When, by the loop's time, unless it is renewed before."""
    timer: asyncio.TimerHandle | None = None
    """Of the next look at it."""
    is_committing: bool = False
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def id(self) -> str:
        return self.remote.lease


class CleaningLeases:
    """The leases of this broker. On the event loop."""

    __slots__ = (
        "_administration", "_decompressed_bytes_max", "_fs", "_jobs", "_leases", "_pool", "_tasks",
        "_tell_count", "seconds",
    )  # fmt: skip

    def __init__(
        self,
        pool: CleanerPool,
        fs: FileSystem,
        jobs: CompactionJobs,
        *,
        seconds: float,
        decompressed_bytes_max: int,
        tell_count: Callable[[int], None],
        administration: Executor,
    ) -> None:
        """
        Args:
            seconds: a lease that is not renewed for so long ends.
            decompressed_bytes_max: the most that one batch's records may inflate to.
            tell_count: told how many there are, whenever that changes.
            administration: the threads that make and remove folders.
        """
        # Constant after construction.
        self._pool = pool
        self._decompressed_bytes_max = decompressed_bytes_max
        self._fs = fs
        self._jobs = jobs
        self._tell_count = tell_count
        self._administration = administration
        self.seconds = seconds
        # State.
        self._leases: dict[str, Lease] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def begin(self, log: PartitionLog) -> Lease:
        """Plan a pass over a log, and let others execute it.

        Raises:
            LogBusy, ValueError, CleaningPaused, CleaningAborted: as `CleanerPool.lease`.
            StorageError: its folder cannot be made.
        """
        plan, running = self._pool.lease(log)
        lease = Lease(log, plan, running, _told(plan, log, self._decompressed_bytes_max))
        self._leases[lease.id] = lease
        self._tell_count(len(self._leases))
        running.on_halt = lambda: self._halted(lease)
        try:
            await self._administration.run(self._fs.make_directory, lease.remote.folder)
        except BaseException:
            await self._end(lease)
            raise
        if lease.ended.is_set():
            # Its end may have come before its folder.
            await self._remove(lease)
            raise CleaningAborted(running.stopped_because or "it has ended")
        self._wind(lease)
        _log.info("%s: lease %s has begun", log.topic_partition, lease.id)
        return lease

    def renew(self, log: PartitionLog, lease_id: str) -> None:
        """Let a lease go on for its time from now.

        Raises:
            LeaseRefused: there is none, or its log has changed so that nothing can come of it.
        """
        lease = self._of(log, lease_id)
        if _has_changed(lease):
            self._begin_to_end(lease, CHANGED)
            raise LeaseRefused(f"lease {lease_id} has ended: the log has changed")
        self._wind(lease)

    def commit(self, log: PartitionLog, lease_id: str, result: RemoteResult) -> Job:
        """Begin to commit what was made of a lease's plan; the lease ends with it, however it goes.

        Raises:
            LeaseRefused: there is none, or the result is another one's.
        """
        lease = self._of(log, lease_id)
        if result.lease != lease_id:
            raise LeaseRefused(f"the result is one of lease {result.lease}, not of {lease_id}")
        lease.is_committing = True
        self._stop_timer(lease)

        async def work(_: PartitionLog, told: Callable[[RunningPass], None]) -> PassReport:
            told(lease.running)
            try:
                return await self._pool.commit_lease(
                    lease.running, lease.plan, lease.remote.folder, result
                )
            finally:
                await self._end(lease)

        return self._jobs.begin("commit", [log], work)

    async def end(self, log: PartitionLog, lease_id: str) -> None:
        """End a lease, and remove what was written under it. Raises LeaseRefused."""
        await self._end(self._of(log, lease_id))

    async def stop(self) -> None:
        """Wait for the ends of all; to be called once the pool has stopped, which ends them."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    # ---------------------------------------------------------------- ends

    def _of(self, log: PartitionLog, lease_id: str) -> Lease:
        lease = self._leases.get(lease_id)
        if lease is None or lease.log is not log:
            raise LeaseRefused(f"there is no lease {lease_id} on {log.topic_partition}")
        if lease.is_committing:
            raise LeaseRefused(f"lease {lease_id} is being committed")
        return lease

    def _wind(self, lease: Lease) -> None:
        self._stop_timer(lease)
        loop = asyncio.get_running_loop()
        lease.ends_at = loop.time() + self.seconds
        lease.timer = call_later(min(self.seconds, LOOK_SECONDS), "lease", self._look_at, lease)

    def _look_at(self, lease: Lease) -> None:
        """End it if its time is over, or its log has changed; else look again soon."""
        loop = asyncio.get_running_loop()
        left = lease.ends_at - loop.time()
        if _has_changed(lease):
            self._begin_to_end(lease, CHANGED)
        elif left <= 0:
            self._begin_to_end(lease, f"it was not renewed for {self.seconds:g} s")
        else:
            lease.timer = call_later(min(left, LOOK_SECONDS), "lease", self._look_at, lease)

    def _stop_timer(self, lease: Lease) -> None:
        if lease.timer is not None:
            lease.timer.cancel()
            lease.timer = None

    def _halted(self, lease: Lease) -> None:
        """The pool wants the log, or stops. A commit notices by itself."""
        if not lease.is_committing:
            self._begin_to_end(lease, lease.running.stopped_because or "it was stopped")

    def _begin_to_end(self, lease: Lease, because: str) -> None:
        _log.info("%s: lease %s ends: %s", lease.log.topic_partition, lease.id, because)
        spawn(self._end(lease), "lease end", among=self._tasks)

    async def _end(self, lease: Lease) -> None:
        """Give the log back, and remove the folder; the second time nothing."""
        self._stop_timer(lease)
        if self._leases.pop(lease.id, None) is None:
            return
        self._tell_count(len(self._leases))
        lease.ended.set()
        self._pool.end_lease(lease.running)
        await self._remove(lease)

    async def _remove(self, lease: Lease) -> None:
        try:
            await self._administration.run(self._fs.remove_tree, lease.remote.folder)
        except StorageError as error:
            # An executor that has not noticed may be writing there.
            _log.warning("what is left of lease %s goes at the next start: %s", lease.id, error)


def _has_changed(lease: Lease) -> bool:
    return lease.log.generation != lease.plan.view.generation


def _told(plan: CleaningPlan, log: PartitionLog, decompressed_bytes_max: int) -> RemotePlan:
    log_dir, topic, partition = log.directory.rsplit("/", 2)
    return remote_plan(
        plan,
        lease=uuid.uuid4().hex,
        log_dir=log_dir,
        directory=f"{topic}/{partition}",
        decompressed_bytes_max=decompressed_bytes_max,
    )
