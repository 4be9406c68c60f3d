"""The coordinator of transactions on any disk, with syncs in the calling thread."""

from __future__ import annotations

import asyncio
from typing import cast

from server.coordination.coordinator_topic import TRANSACTION_STATE_TOPIC
from server.coordination.transactions.coordinator import TransactionCoordinator, TransactionSettings
from server.coordination.transactions.markers import Markers
from server.coordination.transactions.transaction_table import TransactionTable
from server.durability.group_commit import GroupCommit
from server.runtime.turns import Turns
from tests.harness.offsets_disk import SyncAtOnce, topic_of
from tests.harness.served_broker import NOW_MS
from tests.harness.topics_world import FixedClock, World

SETTINGS = TransactionSettings(
    timeout_max_ms=900_000,
    id_expiration_ms=0,
    expiration_interval_ms=3_600_000,
    abort_interval_ms=10_000,
)
"""Settings under which every idle id has expired."""


class CountedIds:
    """Hands out consecutive producer ids."""

    def __init__(self, next_id: int) -> None:
        self.following = next_id

    async def next_id(self) -> int:
        self.following += 1
        return self.following - 1


async def no_offsets(partition: int, producer_id: int, *, is_commit: bool) -> None:
    """Do nothing: there are no groups."""


def coordinator_over(world: World, producer_ids: CountedIds) -> TransactionCoordinator:
    """Returns a coordinator that is not started."""
    topic = topic_of(world, TRANSACTION_STATE_TOPIC)
    syncs = cast("GroupCommit", SyncAtOnce())
    markers = Markers(
        world.topics, syncs, now_ms=lambda: NOW_MS, offsets_ended=no_offsets, turns=Turns()
    )
    table = TransactionTable(topic, FixedClock())
    return TransactionCoordinator(topic, table, markers, producer_ids, SETTINGS)


async def carried_out(transactions: TransactionCoordinator) -> None:
    """Wait until every decided transaction is complete."""
    await transactions.table.loads.loaded()
    entries = transactions.table.entries
    while any(each.transaction.metadata.state.is_prepared for each in entries()):  # noqa: ASYNC110
        await asyncio.sleep(0)
