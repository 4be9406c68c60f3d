"""How long the turns of an event loop are, in CPU seconds of its thread.

CPU seconds, because a busy machine cannot blur them.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class LoopTurns:
    """Looks at the clock once in each turn of the loop."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._last_s = 0.0
        self._handle: asyncio.Handle | None = None

    def start(self) -> None:
        self._last_s = time.thread_time()
        self._tick()

    def stop(self) -> None:
        assert self._handle is not None
        self._handle.cancel()

    def _tick(self) -> None:
        now_s = time.thread_time()
        self.longest_s = max(self.longest_s, now_s - self._last_s)
        self._last_s = now_s
        self._handle = asyncio.get_running_loop().call_soon(self._tick)


@asynccontextmanager
async def measured_turns() -> AsyncIterator[LoopTurns]:
    """Measure every turn of the running loop.

    The collector is off meanwhile: its pauses are those of the whole heap, the test's included.
    """
    turns = LoopTurns()
    gc.collect()
    gc.disable()
    turns.start()
    try:
        yield turns
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    finally:
        turns.stop()
        gc.enable()
