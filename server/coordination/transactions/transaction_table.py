"""The transactional ids that this broker coordinates, and the load state of their partitions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from protocol.wire.error_codes import ErrorCode
from server.coordination.coordinator_topic import CoordinatorTopic
from server.coordination.partition_loads import PartitionLoads
from server.coordination.transactions.loading import load_partition
from server.coordination.transactions.metadata import TransactionMetadata, TransactionPartition
from server.coordination.transactions.transaction import Transaction
from server.runtime.clock import Clock, SteadyClock
from storage.threads import any_thread, loop_thread

_log = logging.getLogger("server.coordination.transactions")


@dataclass(slots=True, eq=False)
class TransactionEntry:
    """One transactional id. Only the coordinator changes it."""

    transaction: Transaction
    unmarked: set[TransactionPartition] = field(default_factory=set)
    """Partitions of a decided transaction whose markers are not durable yet."""
    waiting: list[asyncio.Future[None]] = field(default_factory=list)
    """Futures of requests that wait for the next change."""

    async def wait_for_change(self, *, seconds_max: float) -> None:
        """Wait until something changes, at most `seconds_max`."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append(waiter)
        await asyncio.wait([waiter], timeout=seconds_max)
        if waiter in self.waiting:
            self.waiting.remove(waiter)

    def notify(self) -> None:
        """Wake all requests that wait for a change."""
        waiting, self.waiting = self.waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)


@loop_thread
class TransactionTable:
    """The transactional ids."""

    __slots__ = ("_entries", "_topic", "loads", "now_ms")

    def __init__(self, topic: CoordinatorTopic, clock: Clock) -> None:
        # Constant after construction
        self._topic = topic
        self.now_ms = SteadyClock(clock).now_ms
        """The clock of transactions; it never goes back."""
        # State
        self._entries: dict[str, TransactionEntry] = {}
        self.loads = PartitionLoads(topic.partitions_count, _log)

    def start(self, *, on_loaded: Callable[[TransactionEntry], None]) -> None:
        """Start to load the stored transactional ids."""

        async def load(partition: int) -> None:
            loaded = await load_partition(self._topic, partition)
            for transactional_id, metadata in loaded.items():
                on_loaded(self.create(transactional_id, metadata))

        self.loads.start(load)

    def __len__(self) -> int:
        return len(self._entries)

    @any_thread
    def entries(self) -> Iterator[TransactionEntry]:
        """Returns an iterator over all entries; the table may change meanwhile."""
        return iter(list(self._entries.values()))

    def find(self, transactional_id: str) -> TransactionEntry | ErrorCode | None:
        """Returns an entry; None if it does not exist; an error while its partition is loading."""
        entry = self._entries.get(transactional_id)
        if entry is not None or not self._topic.partitions_count:
            return entry
        return self.loads.error(self._topic.partition_of(transactional_id)) or None

    def create(self, transactional_id: str, metadata: TransactionMetadata) -> TransactionEntry:
        """Create an entry that does not exist yet."""
        assert transactional_id not in self._entries
        entry = TransactionEntry(Transaction(transactional_id, metadata))
        self._entries[transactional_id] = entry
        return entry

    def forget(self, entry: TransactionEntry) -> None:
        """Remove an entry from the table."""
        if self._entries.get(entry.transaction.transactional_id) is entry:
            del self._entries[entry.transaction.transactional_id]
