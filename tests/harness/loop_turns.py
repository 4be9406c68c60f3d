"""How long the loop is held: the processor time of its thread from one turn to the next."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager


class LoopTurns:
    """Watches the loop that it is started on."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        """Of the thread's processor time: what else the machine does is not counted."""
        self.count = 0
        self._loop = asyncio.get_running_loop()
        self._is_over = False
        self._before_s = time.thread_time()

    def begin(self) -> None:
        """Count from here on."""
        self._before_s = time.thread_time()
        self._loop.call_soon(self._turn)

    def end(self) -> None:
        """Count the turn that is under way, and no more."""
        self._count()
        self._is_over = True

    def _turn(self) -> None:
        if not self._is_over:
            self._count()
            self._loop.call_soon(self._turn)

    def _count(self) -> None:
        now_s = time.thread_time()
        self.longest_s = max(self.longest_s, now_s - self._before_s)
        self.count += 1
        self._before_s = now_s


@contextmanager
def watched_turns() -> Iterator[LoopTurns]:
    """The turns that the loop takes meanwhile.

    The garbage collector rests: what it takes depends on all the objects that there are, those of
    the test among them, and it may run in any turn.
    """
    gc.disable()
    turns = LoopTurns()
    turns.begin()
    try:
        yield turns
    finally:
        turns.end()
        gc.enable()
