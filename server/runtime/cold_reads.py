"""Runs reads that must wait for the disk in threads of their own.

There they block neither the loop nor other work in threads, such as the validation of produced batches.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

from metrics.server_probe import ServerProbe
from protocol.wire.error_codes import ErrorCode
from storage.segment.reader import ReadResult
from storage.threads import any_thread, loop_thread

THREADS = 8
"""How many reads the disk gets at a time; it orders them better than the broker could."""

Read: TypeAlias = ReadResult | ErrorCode


@loop_thread
class ColdReads:
    """Runs reads in threads."""

    __slots__ = ("_executor", "_probe")

    def __init__(self, probe: ServerProbe) -> None:
        self._probe = probe
        self._executor: ThreadPoolExecutor | None = None

    async def run(self, read: Callable[[], Read]) -> Read:
        """Call `read` in another thread. Returns its result, or raises its exception.

        If the caller is cancelled, the pins of the result are released when the read ends.
        """
        self._probe.cold_read()
        future = asyncio.get_running_loop().run_in_executor(self._started(), read)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            future.add_done_callback(_release)
            raise

    async def run_piece(self, fileno: int, position: int, size: int) -> bytearray:
        """Read at most `size` bytes of an open file in another thread.

        The caller keeps the file open until this returns. Raises OSError.
        """
        self._probe.cold_read()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._started(), _piece, fileno, position, size)

    def _started(self) -> ThreadPoolExecutor:
        if self._executor is None:
            self._executor = ThreadPoolExecutor(THREADS, thread_name_prefix="cold-read")
        return self._executor

    @any_thread
    def close(self) -> None:
        """Finish the submitted reads and end the threads. Blocks."""
        if self._executor is not None:
            self._executor.shutdown()


def _piece(fileno: int, position: int, size: int) -> bytearray:
    data = bytearray(size)
    del data[os.preadv(fileno, (data,), position) :]
    return data


def _release(future: asyncio.Future[Read]) -> None:
    """Release the pins of a read whose caller was cancelled."""
    if not future.cancelled() and future.exception() is None:
        result = future.result()
        if isinstance(result, ReadResult):
            result.release()
