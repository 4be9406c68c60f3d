"""The one place where background work begins on the event loop, and where its mistakes end.

Work that nobody awaits must not fail in silence: what it raises unexpectedly is logged with its
traceback, counted (`kompakt_background_failures_total`), and passed to what must answer for it.
Errors that are expected are handled by the work itself, and never come here.

    spawn(work, name)            a task that is kept until it ends
    call_later, call_soon        a callback of the loop
    every(seconds, step, name)   a step that is repeated for ever, whatever one of them raises
    guarded(name)                a block within other work whose failure must not end that
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, TypeVar, TypeVarTuple

from metrics.mistakes import MISTAKES

_log = logging.getLogger("server.tasks")

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_running: set[asyncio.Task[Any]] = set()
"""The loop itself keeps only weak references to tasks."""


def mistake(name: str, error: BaseException) -> None:
    """Log and count what background work has raised though nobody expected it."""
    MISTAKES.count(name)
    _log.error("%s: failed unexpectedly", name, exc_info=error)


@contextlib.contextmanager
def guarded(name: str) -> Iterator[None]:
    """Let what follows the block go on, whatever the block raises."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - this is what it is for
        mistake(name, error)


def spawn(
    work: Coroutine[Any, Any, T],
    name: str,
    *,
    among: set[asyncio.Task[T]] | None = None,
    failed: Callable[[BaseException], None] | None = None,
) -> asyncio.Task[T]:
    """Begin work in a task of its own.

    Args:
        name: the kind of work, as the metric and the log call it.
        among: holds the task until it ends.
        failed: told what the work has raised, so that nobody waits for it in vain.
    """
    task = asyncio.get_running_loop().create_task(work, name=name)
    held = _running if among is None else among
    held.add(task)

    def ended(_: asyncio.Task[T]) -> None:
        held.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            mistake(name, error)
            if failed is not None:
                failed(error)

    task.add_done_callback(ended)
    return task


def awaited(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Begin work whose outcome the caller awaits: what it raises is raised there."""
    return asyncio.get_running_loop().create_task(work)


def call_later(
    seconds: float, name: str, callback: Callable[[*Ts], object], *arguments: *Ts
) -> asyncio.TimerHandle:
    """Have the loop call back after a time."""
    return asyncio.get_running_loop().call_later(seconds, _call, name, callback, arguments)


def call_soon(name: str, callback: Callable[[*Ts], object], *arguments: *Ts) -> asyncio.Handle:
    """Have the loop call back in its next turn."""
    return asyncio.get_running_loop().call_soon(_call, name, callback, arguments)


def _call(name: str, callback: Callable[[*Ts], object], arguments: tuple[*Ts]) -> None:
    with guarded(name):
        callback(*arguments)


async def raising(error: Exception) -> Any:
    """Raise where it is awaited what was raised before anybody could."""
    raise error


async def every(
    seconds: float, step: Callable[[], Awaitable[None]], name: str, *, at_once: bool = False
) -> None:
    """Repeat a step for ever, with a pause between two; one that fails does not end the others."""
    if not at_once:
        await asyncio.sleep(seconds)
    while True:
        with guarded(name):
            await step()
        await asyncio.sleep(seconds)
