"""The I/O budget: bytes read and written by all cleaner workers together, per second.

A worker says what it has just read or written and is held back until the rate allows for it:

    earned |------------------------->        rate x time, never ahead of what was spent
    spent  |---------------|-----------|      a worker's ticket is where its own bytes end
                           ticket A    ticket B

It waits until `earned` has come to its ticket, so tickets are served in the order they were
taken. Nothing is saved while nobody spends, but for a burst of `BURST_SECONDS`. The lock covers
the arithmetic only, never a sleep (compaction.md, invariant 23).

Differs from Apache Kafka's Throttler.java, which sleeps inside its lock.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

BURST_SECONDS = 0.1
"""How much of a second's budget may be spent at once."""

NAP_SECONDS_MAX = 0.2
"""The longest sleep in one go: a change of the rate is felt after at most this long."""

NAP_SECONDS_MIN = 0.0001
"""A shorter wait is not worth a sleep; what is owed stays in the ledger and is paid later."""


class Throttle:
    """A token bucket shared by the cleaner's workers; all methods may be called by any thread."""

    __slots__ = ("_clock", "_earned", "_earned_at", "_lock", "_rate", "_spent")

    def __init__(self, bytes_per_second: float, *, clock: Callable[[], float]) -> None:
        """`clock` gives monotonic seconds; `math.inf` bytes per second never hold anyone back."""
        assert bytes_per_second > 0
        # Constant after construction.
        self._clock = clock
        self._lock = threading.Lock()
        # State, under the lock: earned <= spent.
        self._rate = bytes_per_second
        self._earned = 0.0
        self._earned_at = clock()
        self._spent = 0

    @property
    def bytes_per_second(self) -> float:
        return self._rate

    def set_rate(self, bytes_per_second: float) -> None:
        """Change the rate; those who wait now go on at the new one."""
        assert bytes_per_second > 0
        with self._lock:
            self._earn()
            self._rate = bytes_per_second

    def spend(self, bytes_count: int, *, sleep: Callable[[float], bool]) -> float:
        """Account for `bytes_count` bytes and wait until the rate allows for them.

        Args:
            sleep: waits for so many seconds, or returns True at once when the work is to stop;
                then the wait ends too.

        Returns:
            The seconds that were asked of `sleep`.
        """
        ticket = self._take_ticket(bytes_count)
        slept = 0.0
        while (wait := self._seconds_until(ticket)) > NAP_SECONDS_MIN:
            nap = min(wait, NAP_SECONDS_MAX)
            slept += nap
            if sleep(nap):
                break
        return slept

    def _take_ticket(self, bytes_count: int) -> int:
        with self._lock:
            self._earn()
            self._spent += bytes_count
            return self._spent

    def _seconds_until(self, ticket: int) -> float:
        with self._lock:
            if math.isinf(self._rate):
                return 0.0
            self._earn()
            return (ticket - self._earned) / self._rate - BURST_SECONDS

    def _earn(self) -> None:
        now = self._clock()
        elapsed, self._earned_at = now - self._earned_at, now
        if math.isinf(self._rate):
            self._earned = float(self._spent)
        else:
            self._earned = min(self._earned + elapsed * self._rate, float(self._spent))
