"""Threads for work that the event loop must not wait for: one pool for each purpose, each bounded.

A slow disk that holds the administration pool does not hold the validation of what is produced,
and neither can take threads from the other. Nothing in the broker uses the loop's shared default
executor. Work beyond a pool's threads waits in that pool's queue; what a client can put there is
bounded by its connection, which waits for its own request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class Executor:
    """A named pool of threads, started on first use."""

    __slots__ = ("_name", "_pool", "_threads")

    def __init__(self, name: str, *, threads: int) -> None:
        self._name = name
        self._threads = threads
        self._pool: ThreadPoolExecutor | None = None

    async def run(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run `work` in a thread of this pool; return its result or raise its exception.

        A caller that is cancelled does not stop work that has begun.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._started(), lambda: work(*args, **kwargs))

    def close(self) -> None:
        """Finish the work that was begun and end the threads. Blocks."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def _started(self) -> ThreadPoolExecutor:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix=self._name)
        return self._pool


class Executors:
    """The broker's pools. The composition root owns them; handlers reach them by `broker`."""

    __slots__ = ("administration", "loading", "lookups", "scrapes", "upkeep", "validation")

    def __init__(self) -> None:
        self.validation = Executor("validation", threads=2)
        """Validate, inflate and recompress what clients produce. Bound by the processor."""
        self.lookups = Executor("lookups", threads=4)
        """Read indexes and segments for a request: ListOffsets by time."""
        self.administration = Executor("administration", threads=4)
        """Create, grow, configure, delete and clean topics, and delete records, for a request."""
        self.loading = Executor("loading", threads=2)
        """Load a coordinator's partition into memory."""
        self.upkeep = Executor("upkeep", threads=2)
        """What the broker does by itself: the log clock, free space, start and stop."""
        self.scrapes = Executor("scrapes", threads=1)
        """Collect metrics. Apart from the rest: a disk that hangs must not hide that it does."""

    def close(self) -> None:
        """Finish what was begun, in every pool. Blocks."""
        for name in self.__slots__:
            pool: Executor = getattr(self, name)
            pool.close()
