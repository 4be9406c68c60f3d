"""Runs Spark in a thread beside a command's event loop, and stops it when the command is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import TypeVar

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

T = TypeVar("T")
Sessions = Callable[[], AbstractContextManager[SparkSession]]
"""Makes the thread's session, like `pipeline.spark.session.job_session`."""
STOP_AGAIN_SECONDS = 0.2
"""Interval of repeated cancels: between two Spark jobs there is nothing to cancel."""


class Stopped(Exception):
    """The work was stopped."""


class SparkThread:
    """One piece of work in a session; used once."""

    __slots__ = ("_is_stopped", "_session", "_sessions")

    def __init__(self, sessions: Sessions) -> None:
        # Constant after construction.
        self._sessions = sessions
        # State, written by one side and read by the other.
        self._session: SparkSession | None = None
        self._is_stopped = False

    async def run(self, work: Callable[[SparkSession], T], stop: asyncio.Event) -> T:
        """Run the work in the thread. Returns its value, or raises, when the thread has finished.

        Raises:
            Stopped: `stop` was set before the end.
            CancelledError: the caller was cancelled; Spark has stopped by then.
        """
        thread = asyncio.create_task(asyncio.to_thread(self._work, work))
        stopped = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait((thread, stopped), return_when=asyncio.FIRST_COMPLETED)
            if not thread.done():
                await self._stop(thread)
                raise Stopped
            return thread.result()
        except asyncio.CancelledError:
            await self._stop(thread)
            raise
        finally:
            stopped.cancel()

    def check(self) -> None:
        """Raise Stopped if the work should stop."""
        if self._is_stopped:
            raise Stopped

    def _work(self, work: Callable[[SparkSession], T]) -> T:
        with self._sessions() as self._session:
            self.check()
            return work(self._session)

    async def _stop(self, thread: asyncio.Task[T]) -> None:
        self._is_stopped = True
        while not thread.done():
            if self._session is not None:
                with suppress(Py4JError, OSError, AttributeError):
                    self._session.sparkContext.cancelAllJobs()
            await asyncio.wait((thread,), timeout=STOP_AGAIN_SECONDS)
        # The exception that Spark raises when it is cancelled does not matter.
        thread.exception()
