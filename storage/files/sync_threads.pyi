"""Rounds of fdatasync on threads that never take the GIL.

A Python thread needs the GIL before its fdatasync starts and again when it ends, and has to wait for it
while the loop is busy appending. That took up to half of the sync's time (ARCHITECTURE.md, section 4).
"""

from collections.abc import Sequence

class SyncThreads:
    """Syncs several files in parallel, one round after the other. Only one thread may call it."""

    threads_max: int

    def __init__(self, threads_max: int) -> None:
        """Threads start when a round first needs them."""

    def fileno(self) -> int:
        """Returns an eventfd that becomes readable when a round ends: read it, then check `is_over`."""

    def begin(self, descriptors: Sequence[int]) -> None:
        """Start an fdatasync of each of these files, which must stay open until the round ends.

        Raises:
            ValueError: there is no file, or a round is running.
            MemoryError, RuntimeError: out of memory or threads; no sync was started.
        """

    @property
    def is_over(self) -> bool:
        """Whether no round is running."""

    def errors_of_round(self) -> list[int]:
        """Returns for each file of the last round 0, or the errno of its sync, whose failure is final.

        Raises:
            ValueError: the round is still running.
        """

    def close(self) -> None:
        """Stop the threads when their syncs end. Closing twice is allowed."""
