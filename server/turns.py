"""Share the event loop between requests: work that takes long is done in slices, one a turn.

    request A (190,000 groups)   |slice|       |slice|       |slice| ...
    request B (100,000 topics)          |slice|       |slice|
    everybody else               ..|req|..|req|..|req|..|req|..|req|

A request that ends within its first slice never waits. One that does not waits in a queue with all
other long ones; each turn of the loop lets the first of the queue do one slice. So whatever is asked
for, and by however many connections, a turn holds at most one slice of long work and what is new.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterable
from typing import Any, TypeVar

T = TypeVar("T")

SLICE_SECONDS = 0.002
"""How long a request may hold the loop at a time. The bound that is promised is 5 ms; an element
that is begun at the end of a slice may take the rest."""


class Turns:
    """The queue of long work on one event loop."""

    __slots__ = ("_is_scheduled", "_waiting")

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_scheduled = False

    async def next(self) -> None:
        """Wait for the caller's next slice."""
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        self._waiting.append(turn)
        self._schedule(loop)
        await turn

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            loop.call_soon(self._grant, loop)

    def _grant(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let the first that still waits run; look again in the next turn of the loop."""
        self._is_scheduled = False
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                break
        if self._waiting:
            self._schedule(loop)


class Pace:
    """One request's use of the loop: when its slice is over, and the wait for the next."""

    __slots__ = ("_clock", "_turns", "_until_s", "has_rested")

    def __init__(self, turns: Turns, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self._turns = turns
        self._clock = clock
        self._until_s = clock() + SLICE_SECONDS
        self.has_rested = False
        """Whether the request took more than one slice so far."""

    @property
    def is_over(self) -> bool:
        """Whether the request has held the loop for its slice."""
        return self._clock() >= self._until_s

    def begin(self) -> None:
        """Begin a new slice: the work has waited for something, and the loop ran others."""
        self._until_s = self._clock() + SLICE_SECONDS

    async def rest(self) -> None:
        """Give the loop to others; returns at the beginning of a new slice."""
        self.has_rested = True
        await self._turns.next()
        self.begin()

    async def run(self, steps: Generator[object, None, T]) -> T:
        """Run what pauses by itself, with a rest wherever a slice is over; return its result."""
        try:
            while True:
                next(steps)
                if self.is_over:
                    await self.rest()
        except StopIteration as ended:
            result: T = ended.value
            return result

    async def paced(self, elements: Iterable[T]) -> AsyncIterator[T]:
        """The elements, with a rest wherever a slice is over.

        Other requests run between two elements: what was true before one may not be after it.
        """
        for element in elements:
            if self.is_over:
                await self.rest()
            yield element

    async def empty(self, collection: dict[Any, Any] | set[Any] | list[Any]) -> None:
        """Empty a collection: to free what a hundred thousand elements hold takes its time, too."""
        take = collection.popitem if isinstance(collection, dict) else collection.pop
        while collection:
            if self.is_over:
                await self.rest()
            take()
