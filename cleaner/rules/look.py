"""The result of one look at all compacted logs: which one to clean next, and when to look again."""

from __future__ import annotations

import math

from cleaner.rules.pick import Assessment
from cleaner.rules.urgency import Candidate, is_late, is_served_before, urgency
from storage.formats.config_property import LONG_MAX
from storage.log.log import PartitionLog
from storage.threads import loop_thread

COUNTS_PER_LOOK = 100
"""So many logs are remembered whose keys should be counted."""


@loop_thread
class Look:
    """The findings of one look so far."""

    __slots__ = (
        "_best", "_latest", "_swept_since", "horizon_now_ms", "longest_wait_ms", "now_ms", "sweep",
        "to_count", "wake_ms",
    )  # fmt: skip

    def __init__(self, now_ms: int, horizon_now_ms: int) -> None:
        """Start a look at wall time `now_ms`; delete horizons up to `horizon_now_ms` have passed."""
        # Constant after construction.
        self.now_ms = now_ms
        self.horizon_now_ms = horizon_now_ms
        # State.
        self._best: tuple[PartitionLog, Candidate] | None = None
        """The most urgent log offered so far."""
        self._latest: tuple[PartitionLog, Candidate] | None = None
        """The late log with the earliest deadline."""
        self.wake_ms = LONG_MAX
        """The next wall time at which the passing of time alone changes an assessment."""

        self.sweep: PartitionLog | None = None
        """The log that has waited longest for a sweep for expired values."""
        self._swept_since = math.inf

        self.to_count: list[PartitionLog] = []
        """Logs whose keys should be counted, in the order in which they were found."""

        self.longest_wait_ms = 0
        """How long a log has waited at most that was offered."""

    def consider(self, assessment: Assessment) -> None:
        """Take a log's next wake-up time into account, whether or not a pass may run over it."""
        self.wake_ms = min(self.wake_ms, assessment.wake_ms)

    def offer(self, log: PartitionLog, candidate: Candidate) -> None:
        """Consider a log over which a pass could start now."""
        self.longest_wait_ms = max(self.longest_wait_ms, candidate.waited_ms)
        if self._best is None or urgency(candidate) > urgency(self._best[1]):
            self._best = log, candidate
        if is_late(candidate) and (
            self._latest is None or is_served_before(candidate, self._latest[1])
        ):
            self._latest = log, candidate

    @property
    def best(self) -> PartitionLog | None:
        """The log whose turn it is, of those offered so far."""
        best = self._best
        if best is not None and is_late(best[1]):
            best = self._latest
        return best[0] if best is not None else None

    def offer_sweep(self, log: PartitionLog, since: float) -> None:
        """Offer a log for a sweep that it waits for since a moment, in monotonic seconds."""
        if since < self._swept_since:
            self.sweep, self._swept_since = log, since

    def offer_count(self, log: PartitionLog) -> None:
        """Offer a log whose keys should be counted."""
        if len(self.to_count) < COUNTS_PER_LOOK:
            self.to_count.append(log)
