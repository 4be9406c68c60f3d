"""The throttle of the cleaner's workers: five budgets over the bytes that they read and write.

    total   read + written     log.cleaner.io.max.bytes.per.second
    read    read               log.cleaner.io.read.bytes.per.second
    write   written            log.cleaner.io.write.bytes.per.second
    guard   read + written     set by the latency guard while it protects produces
    topic   read + written     compaction.io.max.bytes.per.second, shared by the passes over the topic

A worker reports what it has just read or written, takes a ticket from each budget that applies, and
waits until all of them allow it. All rates can change while the broker runs, and waiting workers follow.
No lock is held during a sleep (invariant 23 of tests/cleaner/invariants).

Differs from Apache Kafka's Throttler.java, which has one budget and sleeps inside its lock.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from cleaner.pacing.budget import Budget
from storage.threads import any_thread, loop_thread

NAP_SECONDS_MAX = 0.2
"""The longest single sleep: a new rate takes effect after at most this time."""

NAP_SECONDS_MIN = 0.0001
"""A shorter wait is not worth a sleep; the debt stays in the ledger and is paid later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IoRates:
    """Limits for all workers together, in bytes per second; `math.inf`: no limit."""

    total: float = math.inf
    """Reads and writes together."""
    read: float = math.inf
    write: float = math.inf


@any_thread
class Throttle:
    """The budgets of all workers."""

    __slots__ = ("_guard", "_guard_rate", "_is_lifted", "_rates", "_read", "_total", "_write")

    def __init__(self, rates: IoRates | None = None, *, clock: Callable[[], float]) -> None:
        """Start with these rates, by default without limits; the guard sets no limit yet.

        `clock` returns monotonic seconds.
        """
        # Constant after construction.
        self._total = Budget(clock=clock)
        self._read = Budget(clock=clock)
        self._write = Budget(clock=clock)
        self._guard = Budget(clock=clock)
        # State: the rates that apply while the budgets are not lifted.
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
    def effective_rates(self) -> IoRates:
        """The rates that apply now, including the guard's."""
        if self._is_lifted:
            return IoRates()
        return replace(self._rates, total=min(self._rates.total, self._guard_rate))

    @loop_thread
    def set_rates(self, rates: IoRates) -> None:
        """Change the operator's limits; workers that already wait continue at the new rates."""
        self._rates = rates
        self._apply()

    @loop_thread
    def set_guard_rate(self, bytes_per_second: float) -> None:
        """Change the latency guard's limit on reads and writes together."""
        self._guard_rate = bytes_per_second
        self._apply()

    @loop_thread
    def lift(self, is_lifted: bool) -> None:
        """Lift all budgets, the guard's included, while something matters more; or restore them.

        Bytes spent meanwhile are not owed afterwards.
        """
        self._is_lifted = is_lifted
        self._apply()

    def read(
        self, bytes_count: int, *, sleep: Callable[[float], bool], topic: Budget | None = None
    ) -> float:
        """Account for bytes just read, and wait until every budget allows them.

        Args:
            topic: the budget of the topic; None if it has none.
            sleep: sleeps for the given seconds; returns True at once if the work must stop, which ends
                the wait.

        Returns:
            The seconds passed to `sleep`, in total.
        """
        budgets = (self._total, self._read, self._guard, *self._of_topic(topic))
        return _spend(budgets, bytes_count, sleep)

    def wrote(
        self, bytes_count: int, *, sleep: Callable[[float], bool], topic: Budget | None = None
    ) -> float:
        """Like `read`, for bytes just written."""
        budgets = (self._total, self._write, self._guard, *self._of_topic(topic))
        return _spend(budgets, bytes_count, sleep)

    def _of_topic(self, topic: Budget | None) -> tuple[Budget, ...]:
        return () if topic is None or self._is_lifted else (topic,)

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
