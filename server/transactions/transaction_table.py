"""Every transactional id that this broker coordinates, and which of them are still being read."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from protocol.error_codes import ErrorCode
from server.clock import Clock, SteadyClock
from server.coordinator_topic import CoordinatorTopic
from server.partition_loads import PartitionLoads
from server.transactions.loading import load_partition
from server.transactions.metadata import TransactionMetadata, TransactionPartition
from server.transactions.transaction import Transaction

_log = logging.getLogger("server.transactions")


@dataclass(slots=True, eq=False)
class TransactionEntry:
    """One transactional id. The coordinator changes it, nobody else."""

    transaction: Transaction
    unmarked: set[TransactionPartition] = field(default_factory=set)
    """Partitions of a transaction that is decided, whose markers are not durable yet."""
    waiting: list[asyncio.Future[None]] = field(default_factory=list)
    """Of those who want to know when something has changed."""

    async def changed(self, *, seconds_max: float) -> None:
        """Return when something has changed, or that time is over."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append(waiter)
        await asyncio.wait([waiter], timeout=seconds_max)
        if waiter in self.waiting:
            self.waiting.remove(waiter)

    def tell(self) -> None:
        """Something has changed."""
        waiting, self.waiting = self.waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)


class TransactionTable:
    """The transactional ids. Lives on the event loop."""

    __slots__ = ("_entries", "_topic", "loads", "now_ms")

    def __init__(self, topic: CoordinatorTopic, clock: Clock) -> None:
        # Constant after construction
        self._topic = topic
        self.now_ms = SteadyClock(clock).now_ms
        """The time of transactions."""
        # State
        self._entries: dict[str, TransactionEntry] = {}
        self.loads = PartitionLoads(topic.partitions_count, _log)

    def start(self, *, on_loaded: Callable[[TransactionEntry], None]) -> None:
        """Begin to read what was written before."""

        async def load(partition: int) -> None:
            loaded = await load_partition(self._topic, partition)
            for transactional_id, metadata in loaded.items():
                on_loaded(self.create(transactional_id, metadata))

        self.loads.start(load)

    def __len__(self) -> int:
        return len(self._entries)

    def entries(self) -> Iterator[TransactionEntry]:
        """All of them; they may change meanwhile."""
        return iter(list(self._entries.values()))

    def find(self, transactional_id: str) -> TransactionEntry | ErrorCode | None:
        """One of them; None if there is none; an error while nobody can say."""
        entry = self._entries.get(transactional_id)
        if entry is not None or not self._topic.partitions_count:
            return entry
        return self.loads.error(self._topic.partition_of(transactional_id)) or None

    def create(self, transactional_id: str, metadata: TransactionMetadata) -> TransactionEntry:
        """Begin one that is not there."""
        assert transactional_id not in self._entries
        entry = TransactionEntry(Transaction(transactional_id, metadata))
        self._entries[transactional_id] = entry
        return entry

    def forget(self, entry: TransactionEntry) -> None:
        """Know nothing of it any more."""
        if self._entries.get(entry.transaction.transactional_id) is entry:
            del self._entries[entry.transaction.transactional_id]
