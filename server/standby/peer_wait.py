"""Asks the peers again, with growing pauses, until one answers (standby.on.lost.peer=wait)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from server.client.pauses import STANDBY, Pauses
from server.runtime.tasks import guarded, spawn
from server.standby.peer_answers import Peer, are_lost


class PeerWait:
    """The task of a broker that waits."""

    __slots__ = ("_answered", "_ask", "_lost", "_pauses", "_task")

    def __init__(
        self,
        ask: Callable[[], Awaitable[list[Peer]]],
        *,
        lost: Callable[[list[Peer]], None],
        answered: Callable[[], None],
        pauses: Pauses | None = None,
    ) -> None:
        """Start the task.

        Args:
            lost: called with the reasons each time that no peer answers.
            answered: called once, when a peer has answered.
        """
        self._ask = ask
        self._lost = lost
        self._answered = answered
        self._pauses = Pauses(STANDBY) if pauses is None else pauses
        self._task = spawn(self._wait(), "peer wait")

    async def stop(self) -> None:
        """End the task."""
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _wait(self) -> None:
        while True:
            await asyncio.sleep(self._pauses.next())
            with guarded("peer wait"):
                peers = await self._ask()
                if not are_lost(peers):
                    self._answered()
                    return
                self._lost(peers)
