"""Verifications of the ledgers that operators started: one at a time, at the cleaner's pace.

waiting -> running -> done, stopped or failed        each stays visible after its end
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from cleaner.pacing.progress import PassProgress, Phase
from cleaner.pacing.throttle import Throttle
from cleaner.pool.runner import BROKER_STOPS
from server.admin.refusals import CompactionRefused
from server.ledger.ledger_json import Json, ledger_report_json
from server.runtime.executors import Executor
from server.runtime.part_state import PartState
from server.runtime.tasks import spawn
from storage.files.errors import StorageError
from storage.files.files import FileSystem
from storage.ledger.ledger_head import SignedHead
from storage.threads import any_thread, loop_thread
from storage.verify.ledger import (
    LedgerReport,
    LedgerVerification,
    anchors_by_path,
    cleaned_segments,
)
from storage.verify.verify import find_logs

JOBS_MAX = 20
"""At most this many are kept; while this many have not ended, no other one begins."""


class _Stopped(Exception):
    """An operator, or the end of the broker, stops the verification."""


@dataclass(slots=True)
class LedgerJob:
    """One verification of all ledgers."""

    id: int
    progress: PassProgress
    anchors: Sequence[SignedHead] = ()
    state: PartState = PartState.WAITING
    reports: list[LedgerReport] = field(default_factory=list)
    error: str | None = None
    stop: threading.Event = field(default_factory=threading.Event)

    def as_json(self) -> Json:
        """Returns its state; the reports are complete once it is over."""
        progress = self.progress.snapshot()
        return {
            "id": self.id,
            "state": self.state.value,
            "is_over": self.state.is_end,
            "error": self.error,
            "is_sound": self.state is PartState.DONE and all(r.is_sound for r in self.reports),
            "progress": {
                "bytes_done": progress.bytes_done,
                "bytes_planned": progress.bytes_planned,
                "seconds": round(progress.seconds, 3),
                "eta_seconds": progress.eta_seconds,
            },
            "ledgers": [ledger_report_json(report) for report in self.reports],
        }


@loop_thread
class LedgerVerifications:
    """Starts verifications, and keeps the last ones."""

    __slots__ = (
        "_executor", "_files", "_is_stopping", "_jobs", "_monotonic", "_next_id", "_paths", "_tasks",
        "_throttle",
    )  # fmt: skip

    def __init__(
        self,
        files: FileSystem,
        paths: Callable[[], list[str]],
        throttle: Throttle,
        *,
        executor: Executor,
        monotonic: Callable[[], float],
    ) -> None:
        """`paths` returns the log directories that are in service."""
        # Constant after construction
        self._files = files
        self._paths = paths
        self._throttle = throttle
        self._executor = executor
        self._monotonic = monotonic
        # State
        self._is_stopping = False
        self._next_id = 1
        self._jobs: dict[int, LedgerJob] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, anchors: Sequence[SignedHead] = ()) -> LedgerJob:
        """Start a verification of all ledgers, which must have these anchors.

        Raises:
            CompactionRefused: too many have not ended, or the broker stops.
        """
        if self._is_stopping:
            raise CompactionRefused(409, BROKER_STOPS)
        over = [job.id for job in self._jobs.values() if job.state.is_end]
        if len(self._jobs) == JOBS_MAX and not over:
            raise CompactionRefused(409, f"{JOBS_MAX} verifications have not ended yet")
        if len(self._jobs) == JOBS_MAX:
            del self._jobs[over[0]]
        job = LedgerJob(self._next_id, PassProgress(self._monotonic), anchors)
        self._next_id += 1
        self._jobs[job.id] = job
        spawn(self._run(job), "ledger verification", among=self._tasks)
        return job

    def get(self, number: int | None) -> LedgerJob:
        """Returns a verification. Raises CompactionRefused: there is none of this number."""
        job = self._jobs.get(-1 if number is None else number)
        if job is None:
            text = "there is no such verification: it ended long ago, or the broker has restarted"
            raise CompactionRefused(404, text)
        return job

    async def stop(self) -> None:
        """Stop all of them, and wait until they have ended. No other one begins from now on."""
        self._is_stopping = True
        for job in self._jobs.values():
            job.stop.set()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _run(self, job: LedgerJob) -> None:
        try:
            await self._executor.run(self._verify, job)
            job.state = PartState.DONE
        except _Stopped:
            job.state, job.error = PartState.STOPPED, "it was stopped"
        except (StorageError, ValueError) as error:
            job.state, job.error = PartState.FAILED, str(error)
        except Exception as error:
            job.state, job.error = PartState.FAILED, repr(error)
            raise
        finally:
            job.progress.end()

    @any_thread
    def _verify(self, job: LedgerJob) -> None:
        """Verify ledger after ledger, in a worker thread."""
        if job.stop.is_set():
            raise _Stopped
        job.state = PartState.RUNNING
        job.progress.start()
        paths = self._paths()
        anchors = anchors_by_path(self._files, paths, job.anchors)
        found = [(path, find_logs(self._files, path)) for path in paths]
        segments = [
            (path, cleaned_segments(self._files, () if logs is None else logs.logs))
            for path, logs in found
        ]
        planned = sum(each.row.size for _, on_disk in segments for each in on_disk.values())
        job.progress.expect_left(Phase.VERIFY, planned)
        job.progress.enter(Phase.VERIFY)
        for path, on_disk in segments:
            verification = LedgerVerification(
                self._files,
                path,
                on_disk,
                anchors=anchors[path],
                progress=lambda count: self._read(job, count),
            )
            job.reports.append(verification.run())

    @any_thread
    def _read(self, job: LedgerJob, count: int) -> None:
        job.progress.read(count)
        self._throttle.read(count, sleep=job.stop.wait)
        if job.stop.is_set():
            raise _Stopped
