"""Changes to topics as work that is begun in turn, finished whoever still waits, and ended by a stop."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from server.names_in_use import NamesInUse
from server.tasks import awaited
from server.topic import TopicRefused

T = TypeVar("T")


class TopicWork:
    """The changes under way of one broker. Lives on the event loop."""

    __slots__ = ("_in_use", "_tasks", "is_stopping")

    def __init__(self) -> None:
        self._in_use = NamesInUse()
        self._tasks: set[asyncio.Task[Any]] = set()
        self.is_stopping = False
        """Whether what is under way should end soon. Read by any thread."""

    async def exclusively(
        self, names: Sequence[str], until_s: float, work: Coroutine[Any, Any, list[T]], count: int
    ) -> list[T | TopicRefused]:
        """Carry out `work` while nobody else changes these topics; its results.

        If a stop or `until_s` comes before its turn, all of it is refused. A caller that is cancelled
        does not interrupt what was begun.

        Args:
            until_s: on the loop's clock.
            count: how many results there are.
        """
        task = awaited(self._carry_out(names, until_s, work, count))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)

    async def _carry_out(
        self, names: Sequence[str], until_s: float, work: Coroutine[Any, Any, list[T]], count: int
    ) -> list[T | TopicRefused]:
        refusal = TopicRefused.by_stop()
        try:
            async with self._in_use.used(names, until_s=until_s):
                if not self.is_stopping:
                    return [*await work]
        except TimeoutError:
            refusal = TopicRefused.too_late()
        finally:
            # It was never begun if its turn did not come.
            work.close()
        return [refusal] * count

    def interrupt(self) -> None:
        """Begin nothing any more, and end soon what is under way."""
        self.is_stopping = True

    async def stop(self) -> None:
        """Interrupt, and wait for the end of what is under way."""
        self.interrupt()
        while self._tasks:
            await asyncio.wait(self._tasks)
