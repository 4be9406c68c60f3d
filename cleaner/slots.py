"""So many may run at once, first come, first served; how many may change at any time."""

from __future__ import annotations

import asyncio
from collections import deque


class Slots:
    """`async with slots:` waits for a free one. Used on one event loop.

    With fewer than are taken, nobody loses the one he has: no other gets one until enough are free.
    """

    __slots__ = ("_count", "_taken", "_turns")

    def __init__(self, count: int) -> None:
        self._count = count
        self._taken = 0
        self._turns: deque[asyncio.Future[None]] = deque()
        """Of those who wait."""

    def resize(self, count: int) -> None:
        """Let so many run at once from now on."""
        self._count = count
        self._give()

    async def __aenter__(self) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._turns.append(turn)
        self._give()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self._take_back()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._take_back()

    def _take_back(self) -> None:
        self._taken -= 1
        self._give()

    def _give(self) -> None:
        while self._turns and self._taken < self._count:
            turn = self._turns.popleft()
            if not turn.cancelled():
                self._taken += 1
                turn.set_result(None)
