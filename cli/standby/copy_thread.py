"""Runs work over a standby's copies in their threads. A failing disk ends the standby."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from cli.base.command_end import EXIT_FAILED, CommandFailed
from storage.files.errors import StorageError

P = ParamSpec("P")
T = TypeVar("T")


class Ended(CommandFailed):
    """The standby cannot continue."""

    def __init__(self, message: str) -> None:
        super().__init__(EXIT_FAILED, message)


async def in_thread(
    thread: ThreadPoolExecutor, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Run work over a copy in its thread.

    Raises:
        Ended: the disk failed.
    """
    loop = asyncio.get_running_loop()
    try:
        # A copy must not be closed while its thread works, so cancelling does not interrupt it.
        return await asyncio.shield(loop.run_in_executor(thread, lambda: work(*args, **kwargs)))
    except StorageError as error:
        raise Ended(str(error)) from error
