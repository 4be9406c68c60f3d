"""The pause of a connection whose client exceeded a quota: no bytes are read, no request starts.

Source: KIP-219; Apache Kafka, ThrottledChannel.java.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from server.runtime.tasks import call_later
from storage.threads import loop_thread


@loop_thread
class Mute:
    """Tells whether a connection pauses, and for how long."""

    __slots__ = ("_ended", "_on_end", "_timer", "_until_s", "is_on")

    def __init__(self) -> None:
        # State: the others mean something only while it is on.
        self.is_on = False
        """Whether the connection pauses now."""
        self._until_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._ended: asyncio.Future[None] | None = None
        self._on_end: Callable[[], None] | None = None

    def begin(self, seconds: float, on_end: Callable[[], None]) -> None:
        """Pause for this long from now, or until an earlier pause ends, if that is later.

        Args:
            on_end: called when the pause is over.
        """
        until_s = asyncio.get_running_loop().time() + seconds
        if self._timer is not None:
            if until_s <= self._until_s:
                return
            self._timer.cancel()
        self.is_on, self._until_s, self._on_end = True, until_s, on_end
        self._timer = call_later(seconds, "throttle", self.end)

    def end(self) -> None:
        """End the pause: its time is over, or the connection ends."""
        if self._timer is None:
            return
        self._timer.cancel()
        on_end, self._on_end = self._on_end, None
        self._timer, self.is_on = None, False
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)
        if on_end is not None:
            on_end()

    async def over(self) -> None:
        """Return when no pause is on. Only one coroutine may wait."""
        while self.is_on:
            self._ended = asyncio.get_running_loop().create_future()
            await self._ended
        self._ended = None
