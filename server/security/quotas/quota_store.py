"""The configured quotas: in the metadata store, and in effect.

    /quotas/{"user":"alice"}    {"producer_byte_rate": 1048576.0, ...}    one key for each entity

A change takes effect as soon as it is durable, and holds after a restart.

Source: KIP-546; Apache Kafka, ClientQuotaControlManager.java, ClientQuotasImage.java.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from itertools import islice

from cleaner.rules.text import count_text
from server.metadata.store import Delete, MetadataStore, Put
from server.runtime.turns import Pace
from server.security.quotas.quota_entity import (
    QuotaEntity,
    fault_of_entity,
    fault_of_quota,
)
from storage.threads import any_thread, loop_thread

_log = logging.getLogger("server.security.quotas.quota_store")

PREFIX = "/quotas/"
ENTITIES_PER_WRITE = 256
"""How many entities one transaction of the metadata store changes: it holds the loop only briefly."""
ENTITIES_LOGGED_MAX = 10
"""How many entities of a transaction the log lists."""

Changes = Mapping[str, float | None]
"""New values by the quota's key; None removes a quota."""

Follow = Callable[[QuotaEntity, str, float | None], None]
"""Called when an entity's quota has a new value, or None when it was removed."""


@loop_thread
class QuotaStore:
    """Sole owner of the configured quotas."""

    __slots__ = ("_follow", "_lock", "_quotas", "_store")

    def __init__(self, store: MetadataStore, *, follow: Follow) -> None:
        # Constant after construction
        self._store = store
        self._follow = follow
        self._lock = asyncio.Lock()
        # State: no entity is without a quota.
        self._quotas: dict[QuotaEntity, Mapping[str, float]] = {}

    async def open(self) -> None:
        """Read the stored quotas. Those that this release does not know are skipped with a warning."""
        for entry in (await self._store.range(PREFIX)).entries:
            entity = QuotaEntity.from_text(entry.key.removeprefix(PREFIX))
            stored: dict[str, float] = json.loads(entry.value)
            faults = {key: fault_of(entity, {key: value}) for key, value in stored.items()}
            for fault in filter(None, faults.values()):
                _log.warning("ignored a stored quota of %s: %s", entity, fault)
            self._apply(entity, {key: stored[key] for key, fault in faults.items() if not fault})

    @property
    @any_thread
    def entities_count(self) -> int:
        """How many entities have quotas."""
        return len(self._quotas)

    def of(self, entity: QuotaEntity) -> Mapping[str, float]:
        """Returns the quotas of one entity, by key; empty if it has none."""
        return self._quotas.get(entity, {})

    def all(self) -> list[tuple[QuotaEntity, Mapping[str, float]]]:
        """Returns all entities with their quotas."""
        return list(self._quotas.items())

    async def alter(self, changes: Sequence[tuple[QuotaEntity, Changes]], pace: Pace) -> None:
        """Change quotas that were checked with `fault_of`; durable and in effect when this returns.

        A crash may leave the first of more than `ENTITIES_PER_WRITE` entities changed.

        Raises:
            StorageError: the disk failed or is full; the entities that were not written keep theirs.
        """
        async with self._lock:
            for start in range(0, len(changes), ENTITIES_PER_WRITE):
                await self._write(changes[start : start + ENTITIES_PER_WRITE])
                if pace.is_over:
                    await pace.rest()

    async def _write(self, changes: Sequence[tuple[QuotaEntity, Changes]]) -> None:
        after = {entity: self._after(entity, each) for entity, each in changes}
        await self._store.txn((), [_operation(*each) for each in after.items()])
        for entity, quotas in after.items():
            self._apply(entity, quotas)
        for entity, quotas in islice(after.items(), ENTITIES_LOGGED_MAX):
            _log.info("quotas of %s: %s", entity, quotas)
        if len(after) > ENTITIES_LOGGED_MAX:
            rest = count_text(len(after) - ENTITIES_LOGGED_MAX, "other entity", "other entities")
            _log.info("changed the quotas of %s", rest)

    def _after(self, entity: QuotaEntity, changes: Changes) -> dict[str, float]:
        after = {**self.of(entity), **changes}
        return {key: value for key, value in after.items() if value is not None}

    def _apply(self, entity: QuotaEntity, quotas: Mapping[str, float]) -> None:
        before = self.of(entity)
        if quotas:
            self._quotas[entity] = dict(quotas)
        else:
            self._quotas.pop(entity, None)
        for key in before.keys() | quotas.keys():
            if before.get(key) != quotas.get(key):
                self._follow(entity, key, quotas.get(key))


def fault_of(entity: QuotaEntity, changes: Changes) -> str | None:
    """Returns why an entity cannot have these quotas, in Kafka's words; None if it can."""
    fault = fault_of_entity(entity)
    for key, value in changes.items():
        if fault is None and value is not None:
            fault = fault_of_quota(entity, key, value)
    return fault


def _operation(entity: QuotaEntity, quotas: Mapping[str, float]) -> Put | Delete:
    key = PREFIX + entity.to_text()
    if not quotas:
        return Delete(key=key)
    return Put(key=key, value=json.dumps(quotas, separators=(",", ":")))
