"""Keeps garbage collections short, and returns freed memory to the system after a peak.

**Collector.** Reference counting frees nearly everything here; the collector only finds cycles. But a
full collection visits every live container: while a request of a million elements is decoded, that
takes a fifth of a second, on the loop. So automatic collections are limited to the young generations,
and this timer runs a full one while no large request is in memory. If the full collection took long,
the surviving objects are frozen, so that the next one does not visit them again.

**Allocator.** glibc keeps memory that is freed below the top of its heap. After a peak of requests or
answers, a thread returns the free pages with malloc_trim(3), which takes milliseconds per gigabyte and
does not hold the interpreter lock.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import time
from collections.abc import Callable
from pathlib import Path

from server.runtime.executors import Executor
from server.runtime.tasks import every, spawn
from storage.threads import loop_thread

TICK_SECONDS = 5.0

YOUNG_THRESHOLDS = (5_000, 4, 1_000_000)
"""Collect the youngest generation after 5,000 new containers (0.3 ms) and the middle one after 20,000
(1 ms). The third threshold is so high that only this module runs full collections."""

LONG_COLLECTION_SECONDS = 0.003

FREED_BYTES_MIN = 32 << 20
"""Freeing less than this is not worth a trim. A full collection waits until requests and answers hold
less than this."""

STATM = Path("/proc/self/statm")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@loop_thread
class MemoryUpkeep:
    """The timer. `stop` ends it and restores the collector's thresholds.

    Args:
        held_bytes: returns how many bytes of memory requests and answers hold now.
        executor: runs the trims.
    """

    __slots__ = ("_executor", "_held_bytes", "_resident_bytes", "_task", "_thresholds", "_trim")

    def __init__(self, held_bytes: Callable[[], int], executor: Executor) -> None:
        # Constant after construction
        self._held_bytes = held_bytes
        self._executor = executor
        self._trim = _trim_function()
        self._thresholds = gc.get_threshold()
        # State: resident memory of the process after the last trim.
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
    """Returns whether the process has grown by enough unused memory since the last trim."""
    return resident - after_last_trim - held >= FREED_BYTES_MIN


def resident_bytes() -> int:
    """Returns the resident memory of the process; 0 if the system does not report it."""
    try:
        return int(STATM.read_text().split()[1]) * PAGE_BYTES
    except FileNotFoundError:
        return 0


def collect(clock: Callable[[], float] = time.thread_time) -> None:
    """Run a full collection; freeze the surviving objects if it took long."""
    began_s = clock()
    gc.collect()
    if clock() - began_s > LONG_COLLECTION_SECONDS:
        gc.freeze()


def _trim_function() -> Callable[[int], int]:
    """Returns malloc_trim(3), or a function without effect if the C library has none."""
    try:
        trim: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except AttributeError:
        return int
    return trim
