"""How fast a link copies: a budget in bytes per second, of the same kind as the cleaner's.

A copier pays for each answer once it is written, and asks for the next when the budget allows all
bytes up to there. So nothing is held while it waits. All copiers of a link share one budget.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import replace

from cleaner.pacing.budget import Budget
from cleaner.pacing.throttle import NAP_SECONDS_MAX, NAP_SECONDS_MIN
from server.replication.requests import FetchBounds
from storage.threads import loop_thread

ANSWER_SECONDS = 1.0
"""An answer is at most what the budget gives in this time, except for a first batch that is larger."""


@loop_thread
class FetchPace:
    """The budget of one link."""

    __slots__ = ("_budget", "_sleep")

    def __init__(
        self,
        bytes_per_second: int | None,
        *,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """
        Args:
            bytes_per_second: None: no limit.
            clock: returns monotonic seconds.
        """
        self._budget = Budget(clock=clock)
        self._sleep = sleep
        self.set_rate(bytes_per_second)

    def set_rate(self, bytes_per_second: int | None) -> None:
        """Change the rate; copiers that wait continue at the new one."""
        self._budget.set_rate(math.inf if bytes_per_second is None else float(bytes_per_second))

    def bounds(self, bounds: FetchBounds) -> FetchBounds:
        """Returns the bounds of the next answer."""
        rate = self._budget.bytes_per_second
        if math.isinf(rate):
            return bounds
        size = max(1, int(ANSWER_SECONDS * rate))
        return replace(
            bounds,
            max_bytes=min(bounds.max_bytes, size),
            partition_max_bytes=min(bounds.partition_max_bytes, size),
            min_bytes=min(bounds.min_bytes, size),
        )

    async def pay(self, bytes_count: int) -> None:
        """Account for bytes that were copied, and wait until the budget allows them."""
        ticket = self._budget.take_ticket(bytes_count)
        while (wait := self._budget.seconds_until(ticket)) > NAP_SECONDS_MIN:
            await self._sleep(min(wait, NAP_SECONDS_MAX))
