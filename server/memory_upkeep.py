"""Keep the garbage collector short, and give freed memory back to the system after a peak.

**Collector.** Reference counts free nearly everything here; the collector only finds cycles. But its
full collection looks at every container that lives: beside a request of a million elements that
takes a fifth of a second, on the loop. So automatic collections stay with the young, and this timer
makes a full one when no large request is under way. If that took long, what survived it is frozen:
the next one does not look at it again.

**Allocator.** glibc keeps what is freed below the top of its heap. After a peak of requests or
answers the free pages in between are returned (malloc_trim(3)), in a thread, which takes milliseconds
per gigabyte and holds no interpreter lock.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import time
from collections.abc import Callable
from pathlib import Path

from server.executors import Executor
from server.tasks import every, spawn

TICK_SECONDS = 5.0

YOUNG_THRESHOLDS = (5_000, 4, 1_000_000)
"""Collect 5,000 new containers, then 20,000 survivors, and the rest only from here: 0.3 and 1 ms."""

LONG_COLLECTION_SECONDS = 0.003

FREED_BYTES_MIN = 32 << 20
"""Less than this is not worth a trim."""

STATM = Path("/proc/self/statm")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class MemoryUpkeep:
    """The timer. Lives on the event loop; `stop` ends it and gives the collector its defaults back.

    Args:
        held_bytes: returns what requests and answers hold of memory now.
        executor: where the allocator trims.
    """

    __slots__ = ("_executor", "_held_bytes", "_resident_bytes", "_task", "_thresholds", "_trim")

    def __init__(self, held_bytes: Callable[[], int], executor: Executor) -> None:
        # Constant after construction
        self._held_bytes = held_bytes
        self._executor = executor
        self._trim = _trim_function()
        self._thresholds = gc.get_threshold()
        # State: what the process had in memory after the last trim.
        self._resident_bytes = resident_bytes()
        gc.set_threshold(*YOUNG_THRESHOLDS)
        self._task = spawn(every(TICK_SECONDS, self._look, "memory upkeep"), "memory upkeep")

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
        gc.set_threshold(*self._thresholds)

    async def _look(self) -> None:
        held_bytes = self._held_bytes()
        if held_bytes < FREED_BYTES_MIN:
            collect()
        if is_trim_due(resident_bytes(), self._resident_bytes, held_bytes):
            await self._executor.run(self._trim, 0)
            self._resident_bytes = resident_bytes()


def is_trim_due(resident: int, after_last_trim: int, held: int) -> bool:
    """Whether the process keeps so much that nobody holds that the system should have it back."""
    return resident - after_last_trim - held >= FREED_BYTES_MIN


def resident_bytes() -> int:
    """What the process has in memory; 0 where the system does not say."""
    try:
        return int(STATM.read_text().split()[1]) * PAGE_BYTES
    except FileNotFoundError:
        return 0


def collect(clock: Callable[[], float] = time.thread_time) -> None:
    """Make a full collection; freeze what is left if there is so much that it took long."""
    began_s = clock()
    gc.collect()
    if clock() - began_s > LONG_COLLECTION_SECONDS:
        gc.freeze()


def _trim_function() -> Callable[[int], int]:
    """malloc_trim(3); where the C library has none, something that does nothing."""
    try:
        trim: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except AttributeError:
        return int
    return trim
