"""Removes transactional ids that were not used for `transactional.id.expiration.ms`.

Source: Apache Kafka, TransactionStateManager.scala `enableTransactionalIdExpiration`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from server.coordination.transactions.transaction import Outcome
from server.coordination.transactions.transaction_table import TransactionEntry, TransactionTable
from server.runtime.tasks import every, guarded, spawn

_log = logging.getLogger("server.coordination.transactions")

IDS_PER_SLICE = 100
"""Ids checked between two yields to the event loop."""


class Expiry:
    """Checks all transactional ids periodically, from `start` to `stop`.

    Args:
        carry_out: carries out a step's outcome; the result resolves when that is durable.
    """

    __slots__ = ("_carry_out", "_expiry_task", "_interval_ms", "_retention_ms", "_table")

    def __init__(
        self,
        table: TransactionTable,
        carry_out: Callable[[TransactionEntry, Outcome], Awaitable[Outcome]],
        *,
        retention_ms: int,
        interval_ms: int,
    ) -> None:
        # Constant after construction
        self._table = table
        self._carry_out = carry_out
        self._retention_ms = retention_ms
        self._interval_ms = interval_ms
        # State
        self._expiry_task: asyncio.Task[None] | None = None

    def start(self) -> None:
        name = "transactional id expiry"
        self._expiry_task = spawn(every(self._interval_ms / 1000, self.expire, name), name)

    async def stop(self) -> None:
        """Cancel the checks, even in the middle of a round."""
        if self._expiry_task is not None:
            self._expiry_task.cancel()
            await asyncio.wait([self._expiry_task])

    async def expire(self) -> None:
        """Check all ids once and remove the expired ones."""
        for number, entry in enumerate(self._table.entries(), 1):
            with guarded("transactional id expiry"):
                outcome = entry.transaction.expire(
                    retention_ms=self._retention_ms, now_ms=self._table.now_ms()
                )
                await self._carry_out(entry, outcome)
            if not number % IDS_PER_SLICE:
                await asyncio.sleep(0)
