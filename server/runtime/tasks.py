"""Starts all background work on the event loop, and reports its unexpected failures.

No caller awaits background work, so its failures would go unnoticed. An unexpected exception is logged
with its traceback, counted (`kompakt_background_failures_total`), and passed to the `failed` callback
if there is one. The work itself handles the errors that it expects; they never reach this module.

    spawn(work, name)            starts a task and keeps a reference to it until it ends
    call_later, call_soon        schedule a callback on the loop
    every(seconds, step, name)   repeats a step for ever, even if the step raises
    guarded(name)                a block that may fail without ending the work around it
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, TypeVar, TypeVarTuple

from metrics.mistakes import MISTAKES

_log = logging.getLogger("server.runtime.tasks")

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_running: set[asyncio.Task[Any]] = set()
"""The loop itself keeps only weak references to tasks."""


def report_failure(name: str, error: BaseException) -> None:
    """Log and count an unexpected exception of background work."""
    MISTAKES.count(name)
    _log.error("%s: failed unexpectedly", name, exc_info=error)


@contextlib.contextmanager
def guarded(name: str) -> Iterator[None]:
    """Report an exception of the block instead of raising it."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - the purpose is to catch all
        report_failure(name, error)


def spawn(
    work: Coroutine[Any, Any, T],
    name: str,
    *,
    among: set[asyncio.Task[T]] | None = None,
    failed: Callable[[BaseException], None] | None = None,
) -> asyncio.Task[T]:
    """Start work in a new task.

    Args:
        name: the kind of work, for the metric and the log.
        among: a set that holds the task until it ends, instead of the module's own.
        failed: called with an exception of the work, so that its waiters can fail too.
    """
    task = asyncio.get_running_loop().create_task(work, name=name)
    held = _running if among is None else among
    held.add(task)

    def ended(_: asyncio.Task[T]) -> None:
        held.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            report_failure(name, error)
            if failed is not None:
                failed(error)

    task.add_done_callback(ended)
    return task


def awaited(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Start work in a task that the caller awaits; the caller gets its exceptions."""
    return asyncio.get_running_loop().create_task(work)


async def to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """Returns what the work returns. If the caller is cancelled, the work ends first, with its effect.

    For changes that are durable before they are in effect: cancelled in between, they would be in effect
    only after the next start.
    """
    task = awaited(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if not task.cancelled() and (error := task.exception()) is not None:
            report_failure("work of a cancelled task", error)
        raise


def call_later(
    seconds: float, name: str, callback: Callable[[*Ts], object], *arguments: *Ts
) -> asyncio.TimerHandle:
    """Schedule a callback after a delay; reports what the callback raises."""
    return asyncio.get_running_loop().call_later(seconds, _call, name, callback, arguments)


def call_soon(name: str, callback: Callable[[*Ts], object], *arguments: *Ts) -> asyncio.Handle:
    """Schedule a callback for the loop's next turn; reports what the callback raises."""
    return asyncio.get_running_loop().call_soon(_call, name, callback, arguments)


def _call(name: str, callback: Callable[[*Ts], object], arguments: tuple[*Ts]) -> None:
    with guarded(name):
        callback(*arguments)


async def raising(error: Exception) -> Any:
    """Raise `error` when awaited: turns an exception into an awaitable that fails."""
    raise error


async def every(
    seconds: float, step: Callable[[], Awaitable[None]], name: str, *, at_once: bool = False
) -> None:
    """Repeat a step for ever, pausing `seconds` in between; a failing step is reported and repeated.

    Args:
        at_once: run the first step now instead of after a pause.
    """
    if not at_once:
        await asyncio.sleep(seconds)
    while True:
        with guarded(name):
            await step()
        await asyncio.sleep(seconds)
