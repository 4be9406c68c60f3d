"""Where slow work that an append causes is done: sealing, manifest commits, unlinking."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait

from metrics.mistakes import MISTAKES

_log = logging.getLogger("server.background")

THREADS = 2


class Background:
    """Runs jobs in worker threads. Jobs of one log may overlap: the log orders what must be."""

    __slots__ = ("_executor", "_unfinished")

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(THREADS, thread_name_prefix="background")
        # State: jobs that were submitted and have not ended.
        self._unfinished: set[Future[None]] = set()

    def submit(self, job: Callable[[], None]) -> None:
        """Run `job` soon, in another thread. Any thread may call this."""
        future = self._executor.submit(_run, job)
        self._unfinished.add(future)
        future.add_done_callback(self._unfinished.discard)

    def drain(self) -> None:
        """Return when everything submitted has ended, and what that submitted. Blocks."""
        while self._unfinished:
            wait(tuple(self._unfinished))

    def close(self) -> None:
        """Finish what was submitted; nothing may be submitted any more."""
        self._executor.shutdown()


def _run(job: Callable[[], None]) -> None:
    try:
        job()
    except Exception:  # noqa: BLE001 - a mistake in one job must not end the thread
        # Jobs report what they expect to go wrong themselves; this is a mistake of ours.
        _log.exception("a background job failed")
        MISTAKES.count("background job")
