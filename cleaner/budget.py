"""One I/O budget: bytes per second, shared by all cleaner workers, as a ledger without sleep.

    earned |------------------------->        rate x time, never ahead of what was spent
    spent  |---------------|-----------|      a worker's ticket is where its own bytes end
                           ticket A    ticket B

A worker waits until `earned` has come to its ticket, so tickets are served in the order they were
taken. Nothing is saved while nobody spends, but for a burst of `BURST_SECONDS`.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

BURST_SECONDS = 0.1
"""How much of a second's budget may be spent at once."""


class Budget:
    """A token bucket; all methods may be called by any thread, and none ever sleeps."""

    __slots__ = ("_clock", "_earned", "_earned_at", "_lock", "_rate", "_spent")

    def __init__(self, *, clock: Callable[[], float]) -> None:
        """Begin without a limit; `clock` gives monotonic seconds."""
        # Constant after construction.
        self._clock = clock
        self._lock = threading.Lock()
        # State, under the lock: earned <= spent.
        self._rate = math.inf
        self._earned = 0.0
        self._earned_at = clock()
        self._spent = 0

    @property
    def bytes_per_second(self) -> float:
        return self._rate

    def set_rate(self, bytes_per_second: float) -> None:
        """Change the rate, `math.inf` for no limit; those who wait now go on at the new one."""
        assert bytes_per_second > 0
        with self._lock:
            self._earn()
            self._rate = bytes_per_second

    def take_ticket(self, bytes_count: int) -> int:
        """Account for bytes; `seconds_until` says how long to wait for the ticket."""
        with self._lock:
            self._earn()
            self._spent += bytes_count
            return self._spent

    def seconds_until(self, ticket: int) -> float:
        """How long until the rate allows for what was spent up to a ticket; at most 0: it does."""
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
