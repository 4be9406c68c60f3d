"""The sums over all blocks of a key sidecar, which its trailer stores."""

from __future__ import annotations

from dataclasses import dataclass

from storage.formats.manifest import UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyTotals:
    """The sums of one key sidecar. The fields have the same order as in the trailer."""

    blocks: int = 0
    entries: int = 0
    """Keyed records, without those in control batches."""
    tombstones: int = 0
    """The tombstones among them whose batch has no delete horizon yet."""
    unkeyed: int = 0
    """Records without a key, without those in control batches."""
    special_rows: int = 0
    """Batches that are not plain data: transactional batches, control batches and empty batches."""
    batches: int = 0
    least_delete_horizon_ms: int = UNKNOWN
    """The smallest delete horizon of batches that hold a tombstone or a marker; -1 if there is none."""
