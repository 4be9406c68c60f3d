"""The workers of the pool: each cleans one log after another, and sleeps while no log is eligible.

    `clean_next` has cleaned a log         call it again at once
    `clean_next` returned a moment         sleep until then, at most for the back-off
    `clean_next` raised an exception       log and count it, and sleep for the back-off
    the worker ended all the same          log and count it, and start another one

`wake` ends the sleep of all workers, because something has changed.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from contextlib import suppress

from cleaner.pacing.clock import Clock
from cleaner.pacing.probe import CleanerProbe
from cleaner.pool.runner import Runner
from storage.threads import any_thread, loop_thread

# The pool's logger: operators know the log lines of the cleaner by that name.
_log = logging.getLogger("cleaner.pool.pool")


@loop_thread
class Workers:
    """One worker per thread of the runner, from `start` until the runner stops."""

    __slots__ = ("_clean_next", "_clock", "_probe", "_runner", "_tasks", "_waking")

    def __init__(
        self,
        clean_next: Callable[[], Awaitable[float | None]],
        runner: Runner,
        *,
        clock: Clock,
        probe: CleanerProbe,
    ) -> None:
        """`clean_next` returns None if it has cleaned a log, else when to look again, in monotonic
        seconds."""
        # Constant after construction.
        self._clean_next = clean_next
        self._runner = runner
        self._clock = clock
        self._probe = probe
        # State.
        self._waking = asyncio.Event()
        """Wakes the workers that sleep; replaced by a new event each time it is set."""
        self._tasks: dict[int, asyncio.Task[None]] = {}

    @property
    def have_started(self) -> bool:
        """Whether `start` has been called."""
        return bool(self._tasks)

    @property
    @any_thread
    def dead(self) -> int:
        """Workers that have ended while the runner runs and were not replaced yet."""
        # The copy is one step of the interpreter; workers may come and go meanwhile.
        tasks = list(self._tasks.values())
        return 0 if self._runner.is_stopping else sum(each.done() for each in tasks)

    def start(self) -> None:
        """Start the missing workers; surplus workers end once they have no log to clean."""
        for number in range(self._runner.threads):
            if number not in self._tasks:
                self._start_one(number)

    def _start_one(self, number: int) -> None:
        task = asyncio.get_running_loop().create_task(self._work(number), name=f"cleaner-{number}")
        self._tasks[number] = task
        task.add_done_callback(lambda ended: self._ended(number, ended))

    def _ended(self, number: int, task: asyncio.Task[None]) -> None:
        """Replace a worker that has ended without having been asked to."""
        if self._runner.is_stopping or task.cancelled() or self._tasks.get(number) is not task:
            return
        _log.error(
            "cleaner worker %d has ended; another one starts", number, exc_info=task.exception()
        )
        self._probe.worker_failed(repr(task.exception()))
        self._start_one(number)

    def wake(self) -> None:
        """Let the workers that sleep look again now."""
        waking, self._waking = self._waking, asyncio.Event()
        waking.set()

    async def until_ended(self) -> None:
        """Wait until all workers have ended; call it after the runner was asked to stop."""
        self.wake()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _work(self, number: int) -> None:
        while not self._runner.is_stopping:
            if number >= self._runner.threads:
                del self._tasks[number]
                return
            try:
                next_look_at = await self._clean_next()
            except Exception as error:  # noqa: BLE001 - a worker survives any error
                _log.exception("a cleaner worker failed; it continues")
                self._probe.worker_failed(repr(error))
                next_look_at = math.inf
            if next_look_at is not None:
                await self._sleep_until(next_look_at)

    async def _sleep_until(self, moment: float) -> None:
        """Sleep until a moment in monotonic seconds, at most for the back-off, or until `wake`."""
        if self._runner.is_stopping:
            return
        backoff_s = self._runner.settings.backoff_ms / 1000
        seconds = min(backoff_s, moment - self._clock.monotonic())
        with suppress(TimeoutError):
            async with asyncio.timeout(max(seconds, 0.0)):
                await self._waking.wait()
