"""A uvloop that measures how long the broker holds the loop: each call from the loop, in thread CPU
time.

A call is a step of a task from one `await` to the next, or a callback. Only calls into the broker's
code count, since the test runs on the same loop. Garbage collections do not count: they depend on the
garbage of the whole test process, and a real broker freezes the objects of its start. Neither does what
other guests of the host have taken (`stolen_time.py`).
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context
from functools import partial
from pathlib import Path
from typing import Any, TypeVarTuple

import pytest
import uvloop

from server.net.connection import Connection
from tests.harness.stolen_time import StolenTime

CALL_SECONDS_MAX = 0.05
"""The longest call allowed in a test: ten times what the broker promises, to allow for slow machines."""

ROOT = Path(__file__).parents[2]
OURS = tuple(
    str(ROOT / package) for package in ("server", "cleaner", "storage", "protocol", "metrics")
)
HTTP = "aiohttp/web_protocol.py"
"""Answers HTTP requests in its own tasks."""

Ts = TypeVarTuple("Ts")


class HeldLoop(AssertionError):
    """The broker held the loop for too long; the message names the calls."""


class WatchedLoop(uvloop.Loop):
    """Measures calls while it is watched."""

    def __init__(self) -> None:
        super().__init__()
        self._is_watching = False
        self._held: list[tuple[float, str]] = []
        self._garbage = GarbageTime()
        self._stolen = StolenTime()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Measure within the block. Raises HeldLoop at the end if a call of the broker took too long."""
        if self._is_watching:
            yield
            return
        self._is_watching, self._held = True, []
        received = Connection.buffer_updated

        def timed(connection: Connection, nbytes: int) -> None:
            # The loop calls it from C, not through a handle.
            self._timed(received, (connection, nbytes))

        try:
            with self._garbage.counted(), pytest.MonkeyPatch.context() as patch:
                patch.setattr(Connection, "buffer_updated", timed)
                yield
        finally:
            self._is_watching = False
        if self._held:
            longest = sorted(self._held, reverse=True)[:5]
            calls = "; ".join(
                f"{1000 * seconds:.0f} ms of CPU: {name}" for seconds, name in longest
            )
            raise HeldLoop(
                f"the loop was held for more than {1000 * CALL_SECONDS_MAX:.0f} ms: {calls}"
            )

    def call_soon(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        if not self._is_watching:
            return super().call_soon(callback, *args, context=context)
        return super().call_soon(self._timed, callback, args, context=context)

    def call_soon_threadsafe(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        if not self._is_watching:
            return super().call_soon_threadsafe(callback, *args, context=context)
        return super().call_soon_threadsafe(self._timed, callback, args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        if not self._is_watching:
            return super().call_later(delay, callback, *args, context=context)
        return super().call_later(delay, self._timed, callback, args, context=context)

    def _timed(self, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        self._stolen.call_begins()
        before, garbage_before = time.thread_time(), self._garbage.seconds
        try:
            callback(*args)
        finally:
            garbage = self._garbage.seconds - garbage_before
            seconds = time.thread_time() - before - garbage
            if seconds > CALL_SECONDS_MAX and seconds - self._stolen.seconds() > CALL_SECONDS_MAX:
                file, name = _code_of(callback)
                if file.startswith(OURS) or file.endswith(HTTP):
                    self._held.append((seconds, name))


class GarbageTime:
    """The duration of garbage collections in the thread that created this."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._began = 0.0
        self.seconds = 0.0

    @contextmanager
    def counted(self) -> Iterator[None]:
        gc.callbacks.append(self._collected)
        try:
            yield
        finally:
            gc.callbacks.remove(self._collected)

    def _collected(self, phase: str, _info: dict[str, int]) -> None:
        if threading.get_ident() != self._thread:
            return
        if phase == "start":
            self._began = time.thread_time()
        else:
            self.seconds += time.thread_time() - self._began


def _code_of(callback: Callable[..., object]) -> tuple[str, str]:
    """Returns the file and the name of a call's code: a task's coroutine, or a function."""
    task = getattr(callback, "__self__", None)
    if isinstance(task, asyncio.Task):
        coroutine = task.get_coro()
        code = getattr(coroutine, "cr_code", None)
        return (code.co_filename, code.co_qualname) if code is not None else ("", str(coroutine))
    while isinstance(callback, partial):
        callback = callback.func
    function = inspect.unwrap(getattr(callback, "__func__", callback))
    code = getattr(function, "__code__", None)
    return (code.co_filename, code.co_qualname) if code is not None else ("", str(function))
