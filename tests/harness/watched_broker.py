"""A broker on its own loop in its own thread, which measures its longest turn.

A turn is measured in CPU time of the loop's thread, so neither other threads and processes nor clients
on the test's own loop affect it; nor do other guests of the host (`stolen_time.py`).
"""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.harness.served_broker import ServedBroker, serving_broker
from tests.harness.stolen_time import StolenTime
from tests.harness.watched_loop import GarbageTime

SECONDS_MAX = 300.0


class WatchedLoop(asyncio.SelectorEventLoop):
    """An event loop that measures its turns, without garbage collections: those have all the garbage of
    the test process to look at."""

    def __init__(self) -> None:
        super().__init__()
        self.longest_turn_s = 0.0
        self._garbage = GarbageTime()
        self._stolen = StolenTime()

    def run_forever(self) -> None:
        self._garbage = GarbageTime()
        with self._garbage.counted():
            super().run_forever()

    def _run_once(self) -> None:
        self._stolen.call_begins()
        began_s, garbage_s = time.thread_time(), self._garbage.seconds
        super()._run_once()  # type: ignore[misc]
        turn_s = time.thread_time() - began_s - (self._garbage.seconds - garbage_s)
        if turn_s > self.longest_turn_s:
            self.longest_turn_s = max(self.longest_turn_s, turn_s - self._stolen.seconds())


class WatchedBroker:
    """A running broker, seen from another thread."""

    def __init__(self, served: ServedBroker, loop: WatchedLoop) -> None:
        self._served = served
        self._loop = loop
        self.host, self.port = served.broker.addresses["PLAINTEXT"]

    def run(self, work: Callable[[ServedBroker], Coroutine[Any, Any, Any]]) -> Any:
        """Run a coroutine on the broker's loop and wait for its result."""
        future = asyncio.run_coroutine_threadsafe(work(self._served), self._loop)
        return future.result(SECONDS_MAX)

    @contextmanager
    def longest_turn(self) -> Iterator[Callable[[], float]]:
        """Measure the turns within; the yielded function returns the longest one in seconds."""
        self._loop.call_soon_threadsafe(setattr, self._loop, "longest_turn_s", 0.0)
        yield lambda: self._loop.longest_turn_s


@contextmanager
def watched_broker(directory: Path, **properties: str) -> Iterator[WatchedBroker]:
    """Run a broker like `serving_broker`, in its own thread."""
    ready: list[WatchedBroker] = []
    is_ready, may_end = threading.Event(), asyncio.Event()
    loop = WatchedLoop()

    async def serve() -> None:
        async with serving_broker(directory, **properties) as served:
            ready.append(WatchedBroker(served, loop))
            is_ready.set()
            await may_end.wait()

    def run() -> None:
        try:
            loop.run_until_complete(serve())
        finally:
            is_ready.set()
            loop.close()

    # The collector then only has to look at the broker's objects, as in a broker process.
    gc.collect()
    gc.freeze()
    thread = threading.Thread(target=run, name="watched-broker")
    thread.start()
    try:
        assert is_ready.wait(SECONDS_MAX)
        assert ready, "the broker did not start"
        yield ready[0]
    finally:
        if not loop.is_closed():
            loop.call_soon_threadsafe(may_end.set)
        thread.join(SECONDS_MAX)
