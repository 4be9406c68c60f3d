"""The coordinator of transactions over any disk, with syncs in the caller's time."""

from __future__ import annotations

import asyncio
from typing import cast

from server.coordinator_topic import TRANSACTION_STATE_TOPIC
from server.group_commit import GroupCommit
from server.transactions.coordinator import TransactionCoordinator, TransactionSettings
from server.transactions.markers import Markers
from server.transactions.transaction_table import TransactionTable
from server.turns import Turns
from tests.harness.offsets_disk import SyncAtOnce, topic_of
from tests.harness.served_broker import NOW_MS
from tests.harness.topics_world import FixedClock, World

SETTINGS = TransactionSettings(
    timeout_max_ms=900_000,
    id_expiration_ms=0,
    expiration_interval_ms=3_600_000,
    abort_interval_ms=10_000,
)
"""Whatever is idle has expired."""


class CountedIds:
    """Producer ids, one after the other."""

    def __init__(self, next_id: int) -> None:
        self.following = next_id

    async def next_id(self) -> int:
        self.following += 1
        return self.following - 1


async def no_offsets(partition: int, producer_id: int, *, is_commit: bool) -> None:
    """There are no groups."""


def coordinator_over(world: World, producer_ids: CountedIds) -> TransactionCoordinator:
    """A coordinator that is not started."""
    topic = topic_of(world, TRANSACTION_STATE_TOPIC)
    syncs = cast("GroupCommit", SyncAtOnce())
    markers = Markers(
        world.topics, syncs, now_ms=lambda: NOW_MS, offsets_ended=no_offsets, turns=Turns()
    )
    table = TransactionTable(topic, FixedClock())
    return TransactionCoordinator(topic, table, markers, producer_ids, SETTINGS)


async def carried_out(transactions: TransactionCoordinator) -> None:
    """Wait until every transaction that is decided is complete."""
    await transactions.table.loads.loaded()
    entries = transactions.table.entries
    while any(each.transaction.metadata.state.is_prepared for each in entries()):  # noqa: ASYNC110
        await asyncio.sleep(0)
