"""A sync of one log that others carry out: `storage/sync_threads.pyx` does the fdatasync.

PartitionLog.begin_sync -> descriptor -> fdatasync -> end(errno) -> offset, or the log is offline
                                                   -> abandon()     (it was never carried out)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BegunSync:
    """Keeps the file open and others from syncing it, until one of the two is called, once."""

    descriptor: int
    end: Callable[[int], None]
    """Takes 0, or the errno of an fdatasync that failed. Raises SyncFailed, which is final."""
    abandon: Callable[[], None]
