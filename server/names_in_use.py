"""Which topics are being changed at the moment: one operation at a time for each, many side by side.

An operation on one topic that takes long holds up nobody who works on another topic. Names that
collide (`server/topic_names.py`) count as one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

from server.topic_names import collision_key

FOR_EVER = float("inf")


class NamesInUse:
    """Lives on one event loop."""

    __slots__ = ("_users",)

    def __init__(self) -> None:
        # By collision key; each future is done when its operation is over.
        self._users: dict[str, asyncio.Future[None]] = {}

    @asynccontextmanager
    async def used(
        self, names: Collection[str], *, until_s: float = FOR_EVER
    ) -> AsyncIterator[None]:
        """Use all the names, once none of them is in use by another operation.

        Args:
            until_s: how long to wait at most, on the loop's clock.

        Raises:
            TimeoutError: one of them was in use up to that time, or the time was over before.
        """
        keys = {collision_key(name) for name in names}
        loop = asyncio.get_running_loop()
        if loop.time() >= until_s:
            raise TimeoutError
        async with asyncio.timeout_at(None if until_s == FOR_EVER else until_s):
            while others := {self._users[key] for key in keys if key in self._users}:
                await asyncio.wait(others)
        mine: asyncio.Future[None] = loop.create_future()
        self._users |= dict.fromkeys(keys, mine)
        try:
            yield
        finally:
            for key in keys:
                del self._users[key]
            mine.set_result(None)
