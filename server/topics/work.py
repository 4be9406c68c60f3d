"""Runs changes to topics: one at a time for each topic, to the end even if the caller is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from server.runtime.tasks import awaited
from server.runtime.turns import Pace, Turns, in_slices
from server.topics.names_in_use import NamesInUse
from server.topics.topic import TopicRefused
from storage.threads import loop_thread

T = TypeVar("T")


@loop_thread
class TopicWork:
    """Runs the changes to the topics of one broker."""

    __slots__ = ("_in_use", "_tasks", "is_stopping")

    def __init__(self) -> None:
        self._in_use = NamesInUse()
        self._tasks: set[asyncio.Task[Any]] = set()
        self.is_stopping = False
        """Whether running changes should end soon. Read by any thread."""

    async def exclusively(
        self,
        names: Sequence[str],
        until_s: float,
        work: Coroutine[Any, Any, list[T]],
        count: int,
        *,
        pace: Pace | None = None,
    ) -> list[T | TopicRefused]:
        """Run `work` while no other work changes these topics. Returns its results.

        If the broker stops, or `until_s` passes, before it can start, all of it is refused. Cancelling
        the caller does not interrupt work that has started.

        Args:
            until_s: when it is too late to start, on the loop's clock.
            count: the number of results.
            pace: the pace of the client's request, if `work` uses it.
        """
        task = awaited(self._run(names, until_s, work, count, pace or Pace(Turns())))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)

    async def _run(
        self,
        names: Sequence[str],
        until_s: float,
        work: Coroutine[Any, Any, list[T]],
        count: int,
        pace: Pace,
    ) -> list[T | TopicRefused]:
        refusal = TopicRefused.by_stop()
        try:
            async with self._in_use.used(names, until_s=until_s):
                if not self.is_stopping:
                    pace.begin()
                    return [*await in_slices(work, pace)]
        except TimeoutError:
            refusal = TopicRefused.too_late()
        finally:
            # If the work never started, Python would warn that its coroutine was never awaited.
            work.close()
        return [refusal] * count

    def interrupt(self) -> None:
        """Refuse new work, and end running work soon."""
        self.is_stopping = True

    async def stop(self) -> None:
        """Interrupt running work and wait until it has ended."""
        self.interrupt()
        while self._tasks:
            await asyncio.wait(self._tasks)
