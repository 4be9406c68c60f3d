"""How long a coroutine holds the event loop at a time, in processor time of its thread."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Timed(Generic[T]):
    """Awaits something and keeps the longest of its turns.

    Processor time of the loop's thread: what other threads and processes do at the same time is
    not in it.
    """

    def __init__(self, work: Awaitable[T]) -> None:
        self._work = work
        self.longest_turn_s = 0.0
        self.turns = 0

    def __await__(self) -> Generator[Any, Any, T]:
        steps = self._work.__await__()
        send: Any = steps.send
        value: Any = None
        while True:
            start_s = time.thread_time()
            try:
                awaited = send(value)
            except StopIteration as end:
                result: T = end.value
                return result
            finally:
                self.turns += 1
                self.longest_turn_s = max(self.longest_turn_s, time.thread_time() - start_s)
            try:
                value = yield awaited
                send = steps.send
            except BaseException as error:  # noqa: BLE001 - it goes on to who is awaited
                value, send = error, steps.throw
