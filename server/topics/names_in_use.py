"""Serializes the operations on each topic; operations on different topics run concurrently.

A long operation on one topic does not delay operations on others. Names that collide
(`server/topics/names.py`) count as one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

from server.topics.names import collision_key

FOR_EVER = float("inf")


class NamesInUse:
    """Locks topic names for operations. Lives on one event loop."""

    __slots__ = ("_users",)

    def __init__(self) -> None:
        # By collision key; each future is done when its operation is over.
        self._users: dict[str, asyncio.Future[None]] = {}

    @asynccontextmanager
    async def used(
        self, names: Collection[str], *, until_s: float = FOR_EVER
    ) -> AsyncIterator[None]:
        """Wait until no other operation uses any of the names, then hold them all.

        Args:
            until_s: when to give up, on the loop's clock.

        Raises:
            TimeoutError: a name was in use until then, or that time has already passed.
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
