"""Reads that have to wait for the disk, in threads of their own: they hold up the loop for nobody.

Nor do they hold up anything else that is done in threads, such as the validation of what is produced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

from metrics.server_probe import ServerProbe
from protocol.error_codes import ErrorCode
from storage.reader import ReadResult

THREADS = 8
"""So many reads the disk has to do at a time; it orders them better than we could."""

Read: TypeAlias = ReadResult | ErrorCode


class ColdReads:
    """Does what a loop must not wait for. Used from the loop's thread."""

    __slots__ = ("_executor", "_probe")

    def __init__(self, probe: ServerProbe) -> None:
        self._probe = probe
        self._executor: ThreadPoolExecutor | None = None

    async def run(self, read: Callable[[], Read]) -> Read:
        """What `read` finds, in another thread; raises what it raises.

        Whoever stops waiting for it need not care for its pins: they are released.
        """
        self._probe.cold_read()
        if self._executor is None:
            self._executor = ThreadPoolExecutor(THREADS, thread_name_prefix="cold-read")
        future = asyncio.get_running_loop().run_in_executor(self._executor, read)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            future.add_done_callback(_release)
            raise

    def close(self) -> None:
        """Give the threads back, once they are done. Blocks."""
        if self._executor is not None:
            self._executor.shutdown()


def _release(future: asyncio.Future[Read]) -> None:
    """Let go of what a read has found for nobody."""
    if not future.cancelled() and future.exception() is None:
        result = future.result()
        if isinstance(result, ReadResult):
            result.release()
