"""What holds the cleaner's workers back: four budgets over the bytes that they read and write.

    total   read + written     log.cleaner.io.max.bytes.per.second
    read    read               log.cleaner.io.read.bytes.per.second
    write   written            log.cleaner.io.write.bytes.per.second
    guard   read + written     the latency guard's, moved by it while produces are slow

A worker says what it has just read or written, takes a ticket from each budget that this concerns, and
waits for the last of them. All rates change live, and the wait that has begun follows. No lock is held
during a sleep (compaction.md, invariant 23).

Differs from Apache Kafka's Throttler.java, which has one budget and sleeps inside its lock.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from cleaner.budget import Budget

NAP_SECONDS_MAX = 0.2
"""The longest sleep in one go: a change of a rate is felt after at most this long."""

NAP_SECONDS_MIN = 0.0001
"""A shorter wait is not worth a sleep; what is owed stays in the ledger and is paid later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IoRates:
    """What all workers together may do, in bytes per second; `math.inf`: no limit."""

    total: float = math.inf
    """Read and written together."""
    read: float = math.inf
    write: float = math.inf


class Throttle:
    """The budgets of all workers. The rates are set on one thread; any thread spends."""

    __slots__ = ("_guard", "_guard_rate", "_is_lifted", "_rates", "_read", "_total", "_write")

    def __init__(self, rates: IoRates | None = None, *, clock: Callable[[], float]) -> None:
        """Begin with these rates, with no limit by default; the guard holds nobody back yet.

        `clock` gives monotonic seconds.
        """
        # Constant after construction.
        self._total = Budget(clock=clock)
        self._read = Budget(clock=clock)
        self._write = Budget(clock=clock)
        self._guard = Budget(clock=clock)
        # State: what the budgets come to when they are not lifted.
        self._rates = rates or IoRates()
        self._guard_rate = math.inf
        self._is_lifted = False
        self._apply()

    @property
    def rates(self) -> IoRates:
        return self._rates

    @property
    def guard_rate(self) -> float:
        return self._guard_rate

    @property
    def is_lifted(self) -> bool:
        return self._is_lifted

    @property
    def present_rates(self) -> IoRates:
        """What holds now, the guard included."""
        if self._is_lifted:
            return IoRates()
        return replace(self._rates, total=min(self._rates.total, self._guard_rate))

    def set_rates(self, rates: IoRates) -> None:
        """Change what the operator allows; those who wait now go on at the new rates."""
        self._rates = rates
        self._apply()

    def set_guard_rate(self, bytes_per_second: float) -> None:
        """Change what the latency guard allows, over reads and writes."""
        self._guard_rate = bytes_per_second
        self._apply()

    def lift(self, is_lifted: bool) -> None:
        """Let no budget hold, the guard's neither, because something matters more; or end that.

        What is spent meanwhile is not owed afterwards.
        """
        self._is_lifted = is_lifted
        self._apply()

    def read(self, bytes_count: int, *, sleep: Callable[[float], bool]) -> float:
        """Account for bytes just read and wait until every budget allows for them.

        Args:
            sleep: waits for so many seconds, or returns True at once when the work is to stop;
                then the wait ends too.

        Returns:
            The seconds that were asked of `sleep`.
        """
        return _spend((self._total, self._read, self._guard), bytes_count, sleep)

    def wrote(self, bytes_count: int, *, sleep: Callable[[float], bool]) -> float:
        """As `read`, for bytes just written."""
        return _spend((self._total, self._write, self._guard), bytes_count, sleep)

    def _apply(self) -> None:
        rates = IoRates() if self._is_lifted else self._rates
        self._total.set_rate(rates.total)
        self._read.set_rate(rates.read)
        self._write.set_rate(rates.write)
        self._guard.set_rate(math.inf if self._is_lifted else self._guard_rate)


def _spend(budgets: Sequence[Budget], bytes_count: int, sleep: Callable[[float], bool]) -> float:
    tickets = [(budget, budget.take_ticket(bytes_count)) for budget in budgets]
    slept = 0.0
    while (wait := max(each.seconds_until(ticket) for each, ticket in tickets)) > NAP_SECONDS_MIN:
        nap = min(wait, NAP_SECONDS_MAX)
        slept += nap
        if sleep(nap):
            break
    return slept
