"""One I/O budget in bytes per second, shared by all cleaner workers: a ledger that never sleeps.

    earned |------------------------->        rate x time, never more than was spent
    spent  |---------------|-----------|      a worker's ticket marks the end of its own bytes
                           ticket A    ticket B

A worker waits until `earned` has reached its ticket, so tickets are served in the order in which they
were taken. An idle budget accumulates at most a burst of `BURST_SECONDS`.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

from storage.threads import any_thread

BURST_SECONDS = 0.1
"""The longest burst: the budget of this much time may be spent at once."""


@any_thread
class Budget:
    """A token bucket. No method sleeps."""

    __slots__ = ("_clock", "_earned", "_earned_at", "_lock", "_rate", "_spent")

    def __init__(self, *, clock: Callable[[], float]) -> None:
        """Start without a limit; `clock` returns monotonic seconds."""
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
        """Change the rate (`math.inf`: no limit); workers that already wait continue at the new rate."""
        assert bytes_per_second > 0
        with self._lock:
            self._earn()
            self._rate = bytes_per_second

    def take_ticket(self, bytes_count: int) -> int:
        """Account for bytes. Returns the ticket for `seconds_until`, which says how long to wait."""
        with self._lock:
            self._earn()
            self._spent += bytes_count
            return self._spent

    def seconds_until(self, ticket: int) -> float:
        """Returns how long to wait until the rate allows all bytes up to a ticket; <= 0: no wait."""
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
        self._check_earned_within_spent()

    def _check_earned_within_spent(self) -> None:
        assert self._earned <= float(self._spent)
