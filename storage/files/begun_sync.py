"""A sync of one log whose fdatasync another thread performs (`storage/files/sync_threads.pyx`).

PartitionLog.begin_sync -> descriptor -> fdatasync -> end(errno) -> offset, or the log is offline
                                                   -> abandon()     (the fdatasync never ran)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BegunSync:
    """A started sync. Call either `end` or `abandon`, once: until then the file stays open and no other
    thread can sync it."""

    descriptor: int
    end: Callable[[int], None]
    """Takes 0, or the errno of an fdatasync that failed. Raises SyncFailed, which is final."""
    abandon: Callable[[], None]
