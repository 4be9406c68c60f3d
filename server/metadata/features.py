"""The levels of the cluster's features, which select the protocols that clients use.

    /features    {"<name>": level, ...}     the changed levels; any other feature has its highest level

sparse.log 1 lets a log have gaps that its leader did not make: those of a mirror whose source is
compacted (docs/design/replication.md). group.version 1 is the consumer protocol of groups (KIP-848),
transaction.version 2 the transactions of KIP-890. Clients learn the levels from ApiVersions: at a lower
level they use the older protocol, which the broker serves at every level. At group.version 0 it also
refuses the consumer protocol.

Source: KIP-584, KIP-1022; Apache Kafka, FeatureControlManager.java.
"""

from __future__ import annotations

import asyncio
import enum
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass

from server.metadata.store import MetadataStore, Put
from storage.threads import loop_thread

_log = logging.getLogger("server.metadata.features")

KEY = "/features"
GROUP_VERSION = "group.version"
TRANSACTION_VERSION = "transaction.version"
SPARSE_LOG = "sparse.log"
HIGHEST: Mapping[str, int] = {GROUP_VERSION: 1, SPARSE_LOG: 1, TRANSACTION_VERSION: 2}
"""The features of this release with their highest levels; the lowest level of each is 0 (off)."""


class UpgradeType(enum.IntEnum):
    """How an update may change a level. On the wire: values never change."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureUpdate:
    """A request to set the level of a feature."""

    name: str
    level: int
    upgrade_type: int


@loop_thread
class Features:
    """Owns the feature levels."""

    __slots__ = ("_lock", "_store", "epoch", "levels")

    def __init__(self, store: MetadataStore) -> None:
        # Constant after construction
        self._store = store
        self._lock = asyncio.Lock()
        # State
        self.levels: Mapping[str, int] = dict(HIGHEST)
        """The level of each feature."""
        self.epoch = 0
        """Grows with every change; clients keep the levels with the highest epoch that they saw."""

    async def open(self) -> None:
        """Read the stored levels. A feature that this release does not have is left out."""
        entry = await self._store.get(KEY)
        if entry is not None:
            stored = json.loads(entry.value)
            self.levels = {
                name: min(stored.get(name, highest), highest) for name, highest in HIGHEST.items()
            }
            self.epoch = entry.mod_revision

    async def set_levels(self, changed: Mapping[str, int]) -> None:
        """Change levels that `fault_of_update` accepts. They are durable and in effect on return.

        Raises:
            StorageError: the levels cannot be stored; nothing has changed.
        """
        async with self._lock:
            levels = {**self.levels, **changed}
            if levels == self.levels:
                return
            value = json.dumps(levels, separators=(",", ":"))
            result = await self._store.txn((), [Put(key=KEY, value=value)])
            self.levels, self.epoch = levels, result.revision
            _log.info("feature levels: %s", levels)


def fault_of_update(
    update: FeatureUpdate, levels: Mapping[str, int], controller_id: int
) -> str | None:
    """Returns why an update is invalid, in Kafka's words; None if it is valid."""
    invalid = f"Invalid update version {update.level} for feature {update.name}."
    if update.upgrade_type not in list(UpgradeType):
        return f"{invalid} The controller does not support the given upgrade type."
    if update.level < 0:
        return f"{invalid} A feature version cannot be less than 0."
    if update.name not in levels:
        if update.level == 0:
            return f"{invalid} Feature {update.name} not found."
        return f"{invalid} Local controller {controller_id} does not support this feature."
    if update.level > HIGHEST[update.name]:
        supported = f"0-{HIGHEST[update.name]}"
        return f"{invalid} Local controller {controller_id} only supports versions {supported}"
    if update.level < levels[update.name] and update.upgrade_type == UpgradeType.UPGRADE:
        return (
            f"{invalid} Can't downgrade the version of this feature without setting the upgrade type"
            " to either safe or unsafe downgrade."
        )
    return None
