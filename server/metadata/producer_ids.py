"""Hands out producer ids that are unique, even across crashes.

Blocks of `BLOCK_SIZE` ids are reserved in the metadata store and handed out from memory. The rest of a
block is lost when the broker stops: ids are not scarce.

Source: KIP-360, Apache Kafka ProducerIdManager.java, RPCProducerIdManager.java.
"""

from __future__ import annotations

import asyncio

from server.metadata.store import Compare, MetadataStore, Put
from storage.threads import loop_thread

BLOCK_SIZE = 1000
KEY = "/producer_ids/next"
"""Key of the first unreserved id."""


@loop_thread
class ProducerIds:
    """Hands out producer ids. One instance per broker."""

    __slots__ = ("_end", "_lock", "_next", "_store")

    def __init__(self, store: MetadataStore) -> None:
        # Constant after construction
        self._store = store
        self._lock = asyncio.Lock()
        # State: ids in [_next, _end) are reserved and unused.
        self._next = 0
        self._end = 0

    async def next_id(self) -> int:
        """Returns a producer id that was never used before.

        Raises:
            StorageError: a new block is needed and cannot be reserved.
        """
        async with self._lock:
            while self._next >= self._end:
                await self._take_block()
            producer_id = self._next
            self._next += 1
            return producer_id

    async def _take_block(self) -> None:
        """Reserve the next block. If another broker was faster, nothing changes and the caller
        retries."""
        entry = await self._store.get(KEY)
        start = int(entry.value) if entry else 0
        result = await self._store.txn(
            [Compare(key=KEY, mod_revision=entry.mod_revision if entry else 0)],
            [Put(key=KEY, value=str(start + BLOCK_SIZE))],
        )
        if result.succeeded:
            self._next, self._end = start, start + BLOCK_SIZE
