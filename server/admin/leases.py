"""Leases: each lets another process clean one log for a limited time, with a plan and a folder.

    begun -> renewed ... -> committed (a job)        the broker verifies and swaps the segments
                                                     (`cleaner/remote/commit.py`), and the lease ends
                         -> ended                    by its holder, or because it was not renewed, the
                                                     log changed, cleaning was paused, the broker stops

While a lease lasts, the pool's own passes skip its log. The end of a lease removes its folder
`<log.dirs entry>/leases/<id>`, and the broker's own cleaner may take the log again. Only that folder
outlives the process; the next start removes it.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

from cleaner.pacing.meter import CleaningAborted
from cleaner.pool.pool import CleanerPool
from cleaner.pool.runner import RunningPass
from cleaner.remote.plan import RemotePlan, RemoteResult
from cleaner.remote.travelling_plan import remote_plan
from cleaner.rules.cleaning_plan import CleaningPlan
from cleaner.rules.report import PassReport
from server.admin.compaction_jobs import CompactionJobs, Job
from server.runtime.executors import Executor
from server.runtime.tasks import call_later, spawn
from storage.files.errors import StorageError
from storage.files.files import FileSystem
from storage.log.log import PartitionLog
from storage.threads import loop_thread

_log = logging.getLogger("server.admin.leases")


CHECK_SECONDS = 1.0
"""Interval of the checks whether a lease's log has changed. When a topic is deleted and created again
under the same name, its new log must not wait for the old log's lease."""

CHANGED = "the log was truncated, deleted or reconfigured, or is held"


class LeaseRefused(Exception):
    """There is no such lease, or it is already being committed. The message is for the client."""


@dataclass(slots=True)
class Lease:
    """A log that another process cleans."""

    log: PartitionLog
    plan: CleaningPlan
    running: RunningPass
    """Makes the pool's passes skip the log."""
    remote: RemotePlan
    """The plan as sent to the other process."""
    ends_at: float = 0.0
    """When it expires unless it is renewed, in the loop's time."""
    timer: asyncio.TimerHandle | None = None
    """Fires at the next check."""
    is_committing: bool = False
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def id(self) -> str:
        return self.remote.lease


@loop_thread
class CleaningLeases:
    """Begins, renews, commits and ends the leases of this broker."""

    __slots__ = (
        "_administration", "_decompressed_bytes_max", "_fs", "_jobs", "_leases", "_pool",
        "_report_count", "_tasks", "seconds",
    )  # fmt: skip

    def __init__(
        self,
        pool: CleanerPool,
        fs: FileSystem,
        jobs: CompactionJobs,
        *,
        seconds: float,
        decompressed_bytes_max: int,
        report_count: Callable[[int], None],
        administration: Executor,
    ) -> None:
        """
        Args:
            seconds: a lease ends if it is not renewed for this long.
            decompressed_bytes_max: the most bytes that one batch's records may decompress to.
            report_count: called with the number of leases whenever it changes.
            administration: the threads that create and remove folders.
        """
        # Constant after construction.
        self._pool = pool
        self._decompressed_bytes_max = decompressed_bytes_max
        self._fs = fs
        self._jobs = jobs
        self._report_count = report_count
        self._administration = administration
        self.seconds = seconds
        # State.
        self._leases: dict[str, Lease] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def begin(self, log: PartitionLog) -> Lease:
        """Plan a pass over a log and lease it to another process.

        Raises:
            LogBusy, ValueError, CleaningPaused, CleaningAborted: as `CleanerPool.lease`.
            StorageError: the folder cannot be created.
        """
        await self._pool.make_way()
        plan, running = self._pool.lease(log)
        lease = Lease(log, plan, running, _remote_plan(plan, log, self._decompressed_bytes_max))
        self._leases[lease.id] = lease
        self._report_count(len(self._leases))
        running.on_halt = lambda: self._halted(lease)
        try:
            await self._administration.run(self._fs.make_directory, lease.remote.folder)
        except BaseException:
            await self._end(lease)
            raise
        if lease.ended.is_set():
            # The lease ended while its folder was being created, so `_end` may have missed it.
            await self._remove_folder(lease)
            raise CleaningAborted(running.stopped_because or "it has ended")
        self._extend(lease)
        _log.info("%s: lease %s has begun", log.topic_partition, lease.id)
        return lease

    def renew(self, log: PartitionLog, lease_id: str) -> None:
        """Let a lease run for its full time from now.

        Raises:
            LeaseRefused: there is no such lease, or its log has changed so that the result would
                be useless.
        """
        lease = self._of(log, lease_id)
        if _has_changed(lease):
            self._start_ending(lease, CHANGED)
            raise LeaseRefused(f"lease {lease_id} has ended: the log has changed")
        self._extend(lease)

    def commit(self, log: PartitionLog, lease_id: str, result: RemoteResult) -> Job:
        """Start a job that commits the result of a lease; the lease ends with it, even if it fails.

        `lease_routes.py` calls it for a client's request. The job runs `cleaner/remote/commit.py` in a
        thread of the cleaner's pool: it checks the result and swaps the segments.

        Raises:
            LeaseRefused: there is no such lease, or the result belongs to another one.
        """
        lease = self._of(log, lease_id)
        if result.lease != lease_id:
            raise LeaseRefused(f"the result belongs to lease {result.lease}, not to {lease_id}")
        lease.is_committing = True
        self._stop_timer(lease)

        async def work(_: PartitionLog, on_start: Callable[[RunningPass], None]) -> PassReport:
            on_start(lease.running)
            try:
                return await self._pool.commit_lease(
                    lease.running, lease.plan, lease.remote.folder, result
                )
            finally:
                await self._end(lease)

        return self._jobs.begin("commit", [log], work)

    async def end(self, log: PartitionLog, lease_id: str) -> None:
        """End a lease and remove its folder. Raises LeaseRefused."""
        await self._end(self._of(log, lease_id))

    async def stop(self) -> None:
        """Wait until all leases have ended. Call it after the pool has stopped, which ends them."""
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

    def _extend(self, lease: Lease) -> None:
        self._stop_timer(lease)
        loop = asyncio.get_running_loop()
        lease.ends_at = loop.time() + self.seconds
        lease.timer = call_later(min(self.seconds, CHECK_SECONDS), "lease", self._check, lease)

    def _check(self, lease: Lease) -> None:
        """End a lease that has expired or whose log has changed; else schedule the next check."""
        loop = asyncio.get_running_loop()
        left = lease.ends_at - loop.time()
        if _has_changed(lease):
            self._start_ending(lease, CHANGED)
        elif left <= 0:
            self._start_ending(lease, f"it was not renewed for {self.seconds:g} s")
        else:
            lease.timer = call_later(min(left, CHECK_SECONDS), "lease", self._check, lease)

    def _stop_timer(self, lease: Lease) -> None:
        if lease.timer is not None:
            lease.timer.cancel()
            lease.timer = None

    def _halted(self, lease: Lease) -> None:
        """End the lease because the pool needs the log, or stops. A commit notices that by itself."""
        if not lease.is_committing:
            self._start_ending(lease, lease.running.stopped_because or "it was stopped")

    def _start_ending(self, lease: Lease, because: str) -> None:
        _log.info("%s: lease %s ends: %s", lease.log.topic_partition, lease.id, because)
        spawn(self._end(lease), "lease end", among=self._tasks)

    async def _end(self, lease: Lease) -> None:
        """Return the log to the pool and remove the folder. Does nothing the second time."""
        self._stop_timer(lease)
        if self._leases.pop(lease.id, None) is None:
            return
        self._report_count(len(self._leases))
        lease.ended.set()
        self._pool.end_lease(lease.running)
        await self._remove_folder(lease)

    async def _remove_folder(self, lease: Lease) -> None:
        try:
            await self._administration.run(self._fs.remove_tree, lease.remote.folder)
        except StorageError as error:
            # An executor that has not noticed the end may still write there.
            _log.warning(
                "could not remove the folder of lease %s, the next start will: %s", lease.id, error
            )


def _has_changed(lease: Lease) -> bool:
    return lease.log.generation != lease.plan.view.generation


def _remote_plan(plan: CleaningPlan, log: PartitionLog, decompressed_bytes_max: int) -> RemotePlan:
    log_dir, topic, partition = log.directory.rsplit("/", 2)
    return remote_plan(
        plan,
        lease=uuid.uuid4().hex,
        log_dir=log_dir,
        directory=f"{topic}/{partition}",
        decompressed_bytes_max=decompressed_bytes_max,
    )
