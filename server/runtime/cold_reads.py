"""Runs reads that must wait for the disk in threads of their own.

There they block neither the loop nor other work in threads, such as the validation of produced batches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

from metrics.server_probe import ServerProbe
from protocol.wire.error_codes import ErrorCode
from storage.segment.reader import ReadResult

THREADS = 8
"""How many reads the disk gets at a time; it orders them better than the broker could."""

Read: TypeAlias = ReadResult | ErrorCode


class ColdReads:
    """Runs reads in threads. Used from the loop's thread only."""

    __slots__ = ("_executor", "_probe")

    def __init__(self, probe: ServerProbe) -> None:
        self._probe = probe
        self._executor: ThreadPoolExecutor | None = None

    async def run(self, read: Callable[[], Read]) -> Read:
        """Call `read` in another thread. Returns its result, or raises its exception.

        If the caller is cancelled, the pins of the result are released when the read ends.
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
        """Finish the submitted reads and end the threads. Blocks."""
        if self._executor is not None:
            self._executor.shutdown()


def _release(future: asyncio.Future[Read]) -> None:
    """Release the pins of a read whose caller was cancelled."""
    if not future.cancelled() and future.exception() is None:
        result = future.result()
        if isinstance(result, ReadResult):
            result.release()
