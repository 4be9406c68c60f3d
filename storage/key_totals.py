"""What a key sidecar counts in all of its blocks together: the numbers of its trailer."""

from __future__ import annotations

from dataclasses import dataclass

from storage.manifest import UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyTotals:
    """The fields stand in the trailer's order."""

    blocks: int = 0
    entries: int = 0
    """Keyed records of the batches that are not control batches."""
    tombstones: int = 0
    """Of those, the tombstones in batches that have no delete horizon yet."""
    unkeyed: int = 0
    """Records without a key in batches that are not control batches."""
    special_rows: int = 0
    """Batches that are more than plain data: of a transaction, control batches, empty ones."""
    batches: int = 0
    least_delete_horizon_ms: int = UNKNOWN
    """The least of the batches that hold a tombstone or a transaction's marker; -1 for none."""
