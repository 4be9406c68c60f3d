"""Shares the event loop between requests: long work runs in slices, one slice per turn of the loop.

    request A (190,000 groups)   |slice|       |slice|       |slice| ...
    request B (100,000 topics)          |slice|       |slice|
    all other requests           ..|req|..|req|..|req|..|req|..|req|

A request that ends within its first slice never waits. Longer ones wait in one queue, and each turn of
the loop runs one slice of the first in the queue. So no matter how large the requests are and how many
connections send them, a turn holds at most one slice of long work plus the first slices of new requests.

A slice counts only what a request does itself. While it waits for a sync, a thread or another client,
the loop is free, so a new slice begins with each resumption (`in_slices`).

There are two queues, served alternately: one for requests that had only their first slice, one for the
rest. So a small request whose first slice was lost to a page fault, or to another process on its core,
does not wait behind twenty large ones.
"""

from __future__ import annotations

import asyncio
import time
import types
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterable
from typing import Any, TypeVar

from storage.threads import loop_thread

T = TypeVar("T")

SLICE_SECONDS = 0.002
"""How long a request may hold the loop at a time. The documented bound is 5 ms; an element that starts
at the end of a slice may use the rest."""


@loop_thread
class Turns:
    """The queues of long work on one event loop."""

    __slots__ = (
        "_first", "_is_scheduled", "_number", "_queues", "_receives", "receives_before",
    )  # fmt: skip

    def __init__(self) -> None:
        # Of requests that had their first slice, and of those that had more.
        self._queues = (deque[asyncio.Future[None]](), deque[asyncio.Future[None]]())
        self._first = 0
        self._is_scheduled = False
        self._number = 0
        self._receives = 0
        self.receives_before = 0
        """How many receives brought requests to connections that were free, in the last turn that had
        any, before this one. It may be long ago."""

    def received(self, loop: asyncio.AbstractEventLoop) -> int:
        """Count a receive that brought requests to a connection without any.

        Returns a number that is the same for all callbacks of one turn of the loop. A socket may be read
        many times in one turn, and counts each time.
        """
        if not self._receives:
            loop.call_soon(self._end_turn)
        self._receives += 1
        return self._number

    def _end_turn(self) -> None:
        self._number += 1
        self.receives_before, self._receives = self._receives, 0

    async def next(self, *, is_new: bool) -> None:
        """Wait for the caller's next slice.

        Args:
            is_new: whether the caller had only its first slice.
        """
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        self._queues[0 if is_new else 1].append(turn)
        self._schedule(loop)
        await turn

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            loop.call_soon(self._grant, loop)

    def _grant(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run one waiter, from the queue that was not served last, and schedule the next turn's."""
        self._is_scheduled = False
        for number in (self._first, 1 - self._first):
            if self._let_one_run(self._queues[number]):
                self._first = 1 - number
                break
        if any(self._queues):
            self._schedule(loop)
        self._check_waiters_have_a_turn()

    def _check_waiters_have_a_turn(self) -> None:
        assert self._is_scheduled or not any(self._queues)

    def _let_one_run(self, queue: deque[asyncio.Future[None]]) -> bool:
        """Run the first waiter that was not cancelled. Returns whether there was one."""
        while queue:
            turn = queue.popleft()
            if not turn.done():
                turn.set_result(None)
                return True
        return False


@loop_thread
class Pace:
    """Measures one request's slices of the loop, and lets it wait for the next one."""

    __slots__ = ("_clock", "_is_new", "_turns", "_until_s", "has_rested")

    def __init__(self, turns: Turns, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self._turns = turns
        self._clock = clock
        self._until_s = clock() + SLICE_SECONDS
        self._is_new = True
        self.has_rested = False
        """Whether the request has used more than one slice."""

    @property
    def is_over(self) -> bool:
        """Whether the request has used up its slice."""
        return self._clock() >= self._until_s

    def begin(self) -> None:
        """Begin a new slice, after the work waited for something while the loop ran others."""
        self._until_s = self._clock() + SLICE_SECONDS
        self._is_new = True

    async def rest(self) -> None:
        """Yield the loop to other work; return at the beginning of a new slice."""
        self.has_rested = True
        await self._turns.next(is_new=self._is_new)
        self._is_new = False
        self._until_s = self._clock() + SLICE_SECONDS

    async def run(self, steps: Generator[object, None, T]) -> T:
        """Run a generator, resting after any step that uses up the slice. Returns its result."""
        try:
            while True:
                next(steps)
                if self.is_over:
                    await self.rest()
        except StopIteration as ended:
            result: T = ended.value
            return result

    def paced(self, elements: Iterable[T]) -> AsyncIterator[T]:
        """Yields the elements, and rests whenever a slice is over.

        Other requests may run between two elements: check again what must still be true.
        """
        return _Paced(self, elements)

    async def empty(self, collection: dict[Any, Any] | set[Any] | list[Any]) -> None:
        """Empty a collection in slices, because freeing a hundred thousand elements takes long too."""
        take = collection.popitem if isinstance(collection, dict) else collection.pop
        while collection:
            if self.is_over:
                await self.rest()
            take()


class _Paced(AsyncIterator[T]):
    """The elements of a request, with rests between them.

    No asynchronous generator: the loop keeps a set of those, which costs a small request 2 µs for each.
    """

    __slots__ = ("_elements", "_pace")

    def __init__(self, pace: Pace, elements: Iterable[T]) -> None:
        self._pace = pace
        self._elements = iter(elements)

    async def __anext__(self) -> T:
        for element in self._elements:
            if self._pace.is_over:
                await self._pace.rest()
            return element
        raise StopAsyncIteration


@types.coroutine
def in_slices(work: Awaitable[T], pace: Pace) -> Generator[Any, Any, T]:
    """Await `work`, and begin a new slice of its request whenever the loop resumes it."""
    steps = work.__await__()
    try:
        waiting_for = next(steps)
    except StopIteration as ended:
        value: T = ended.value
        return value
    result: T = yield from continued(steps, waiting_for, on_resume=pace.begin)
    return result


def continued(
    steps: Generator[Any, Any, T] | Coroutine[Any, Any, T],
    waiting_for: Any,
    *,
    on_resume: Callable[[], None] | None = None,
) -> Generator[Any, Any, T]:
    """Run the rest of an awaitable whose first step waits for `waiting_for`. Returns its result.

    Args:
        on_resume: called whenever the loop resumes it.
    """
    try:
        while True:
            try:
                result = yield waiting_for
            except BaseException as error:  # noqa: BLE001 - a cancellation, which it may handle
                if on_resume is not None:
                    on_resume()
                waiting_for = steps.throw(error)
            else:
                if on_resume is not None:
                    on_resume()
                waiting_for = steps.send(result)
    except StopIteration as ended:
        value: T = ended.value
        return value
