"""Rounds of fdatasync on threads that never hold the interpreter.

A thread of Python's has to get the interpreter before its fdatasync begins, and again when it is over,
from a loop that is busy appending: that took as long as half of the sync (ARCHITECTURE.md, section 4).
"""

from collections.abc import Sequence

class SyncThreads:
    """Syncs several files at the same time, one round after the other. One thread calls it."""

    threads_max: int

    def __init__(self, threads_max: int) -> None:
        """Threads are started when a round first needs them."""

    def fileno(self) -> int:
        """An eventfd, readable when a round is over: read it, then ask `is_over`."""

    def begin(self, descriptors: Sequence[int]) -> None:
        """Begin to fdatasync these files, which stay open until the round is over.

        Raises:
            ValueError: there is no file, or a round is under way.
            MemoryError, RuntimeError: there is no room or no thread for it; nothing was begun.
        """

    @property
    def is_over(self) -> bool:
        """Whether no round is under way."""

    def errors_of_round(self) -> list[int]:
        """For each file of the last round 0, or the errno of its sync, which failed for good.

        Raises:
            ValueError: the round is under way.
        """

    def close(self) -> None:
        """End the threads when their syncs are over. Closing twice is allowed."""
