"""Runs the slow work that appends trigger, in worker threads: sealing, manifest commits, unlinking."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait

from metrics.mistakes import MISTAKES
from storage.threads import any_thread

_log = logging.getLogger("server.runtime.background")

THREADS = 2


@any_thread
class Background:
    """Runs jobs in worker threads. Jobs of one log may overlap; the log enforces the order it needs."""

    __slots__ = ("_executor", "_unfinished")

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(THREADS, thread_name_prefix="background")
        # State: jobs that were submitted and have not finished.
        self._unfinished: set[Future[None]] = set()

    def submit(self, job: Callable[[], None]) -> None:
        """Run `job` soon, in another thread."""
        future = self._executor.submit(_run, job)
        self._unfinished.add(future)
        future.add_done_callback(self._unfinished.discard)

    def drain(self) -> None:
        """Wait until all jobs, and the jobs that they submit, have finished. Blocks."""
        while self._unfinished:
            wait(tuple(self._unfinished))

    def close(self) -> None:
        """Finish the submitted jobs and end the threads. Nothing may be submitted afterwards."""
        self._executor.shutdown()


def _run(job: Callable[[], None]) -> None:
    try:
        job()
    except Exception:  # noqa: BLE001 - a bug in one job must not end the thread
        # Jobs handle the errors that they expect, so this is a bug.
        _log.exception("a background job failed")
        MISTAKES.count("background job")
