"""One look at all compacted logs: which one is cleaned next, and when to look again."""

from __future__ import annotations

from cleaner.pick import Assessment
from cleaner.urgency import Urgency
from storage.config_property import LONG_MAX
from storage.log import PartitionLog


class Look:
    """What one look has found so far. Used on the event loop."""

    __slots__ = (
        "best", "best_urgency", "horizon_now_ms", "now_ms", "wake_ms",
    )  # fmt: skip

    def __init__(self, now_ms: int, horizon_now_ms: int) -> None:
        """Look at wall time `now_ms`; up to `horizon_now_ms` delete horizons have passed."""
        # Constant after construction.
        self.now_ms = now_ms
        self.horizon_now_ms = horizon_now_ms
        # State.
        self.best: PartitionLog | None = None
        """The log to clean first of those offered so far."""
        self.best_urgency: Urgency | None = None
        self.wake_ms = LONG_MAX
        """The next moment, in wall time, at which time alone makes a difference."""

    def saw(self, assessment: Assessment) -> None:
        """Take a log into account, whether a pass may run over it or not."""
        self.wake_ms = min(self.wake_ms, assessment.wake_ms)

    def offer(self, log: PartitionLog, its_urgency: Urgency) -> None:
        """Take a log for the best if it is more urgent than those before."""
        if self.best_urgency is None or its_urgency > self.best_urgency:
            self.best, self.best_urgency = log, its_urgency
