"""A first-come-first-served semaphore whose number of slots can change at any time."""

from __future__ import annotations

import asyncio
from collections import deque


class Slots:
    """`async with slots:` waits for a free slot. Used on one event loop.

    If the number drops below the slots in use, all holders keep theirs, and no slot is given out until
    enough are free.
    """

    __slots__ = ("_count", "_taken", "_waiters")

    def __init__(self, count: int) -> None:
        self._count = count
        self._taken = 0
        self._waiters: deque[asyncio.Future[None]] = deque()
        """The futures of the waiting tasks, in order."""

    def resize(self, count: int) -> None:
        """Change the number of slots."""
        self._count = count
        self._grant()

    async def __aenter__(self) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiters.append(turn)
        self._grant()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self._free()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._free()

    def _free(self) -> None:
        self._taken -= 1
        self._grant()

    def _grant(self) -> None:
        while self._waiters and self._taken < self._count:
            turn = self._waiters.popleft()
            if not turn.cancelled():
                self._taken += 1
                turn.set_result(None)
