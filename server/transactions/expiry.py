"""Forgets transactional ids that nobody has used for `transactional.id.expiration.ms`.

Source: Apache Kafka, TransactionStateManager.scala `enableTransactionalIdExpiration`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from server.tasks import guarded, spawn
from server.transactions.transaction import Outcome
from server.transactions.transaction_table import TransactionEntry, TransactionTable

_log = logging.getLogger("server.transactions")

IDS_AT_ONCE = 100
"""So many are looked at before the loop may do something else."""


class Expiry:
    """Looks at every id, again and again, from `start` to `stop`.

    Args:
        carry_out: does what a step owes; what it returns resolves when that is durable.
    """

    __slots__ = ("_carry_out", "_interval_ms", "_retention_ms", "_rounds", "_table")

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
        self._rounds: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._rounds = spawn(self._expire_for_ever(), "transactional id expiry")

    async def stop(self) -> None:
        """End, wherever a round is."""
        if self._rounds is not None:
            self._rounds.cancel()
            await asyncio.wait([self._rounds])

    async def _expire_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._interval_ms / 1000)
            with guarded("transactional id expiry"):
                await self.expire()

    async def expire(self) -> None:
        """One round."""
        for number, entry in enumerate(self._table.entries(), 1):
            with guarded("transactional id expiry"):
                outcome = entry.transaction.expire(
                    retention_ms=self._retention_ms, now_ms=self._table.now_ms()
                )
                await self._carry_out(entry, outcome)
            if not number % IDS_AT_ONCE:
                await asyncio.sleep(0)
