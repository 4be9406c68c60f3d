"""Accounts for what a running pass reads and writes, and stops it on request.

Every step of a pass calls the meter once per chunk. The meter counts the bytes, reports them to the
probe, waits for the throttle and checks whether the pass must stop. So a pass stops within one chunk.
"""

from __future__ import annotations

from collections.abc import Callable

from cleaner.pacing.budget import Budget
from cleaner.pacing.probe import CleanerProbe, SilentProbe
from cleaner.pacing.progress import PassProgress
from cleaner.pacing.throttle import Throttle


class CleaningAborted(Exception):
    """A pass was asked to stop, or its log was truncated, deleted or reconfigured under it.

    This is not an error: the groups already swapped stay, the other work of the pass is discarded.
    """


class PassMeter:
    """The meter of one pass; used by the one thread that runs it."""

    __slots__ = (
        "_is_stale",
        "_probe",
        "_sleep",
        "_throttle",
        "_topic_budget",
        "bytes_read",
        "bytes_written",
        "progress",
        "throttled_seconds",
    )

    def __init__(
        self,
        *,
        throttle: Throttle,
        probe: CleanerProbe,
        sleep: Callable[[float], bool],
        is_stale: Callable[[], bool],
        progress: PassProgress | None = None,
        topic_budget: Callable[[], Budget | None] = lambda: None,
    ) -> None:
        """
        Args:
            sleep: waits, and returns True as soon as the pass must stop; `sleep(0)` only checks that.
            is_stale: whether the log's generation has changed since the pass was planned.
            progress: published progress of the pass; by default it is not published.
            topic_budget: returns the I/O budget of the log's topic, at its present rate; None if it has
                none.
        """
        # Constant after construction.
        self._throttle = throttle
        self._probe = probe
        self._sleep = sleep
        self._is_stale = is_stale
        self._topic_budget = topic_budget
        self.progress = progress or PassProgress(lambda: 0.0)
        """Where the pass reports its phase."""
        # State: only grows.
        self.bytes_read = 0
        self.bytes_written = 0
        self.throttled_seconds = 0.0

    def read(self, bytes_count: int) -> None:
        """Account for bytes just read and wait for the throttle. Raises as `check`."""
        self.bytes_read += bytes_count
        self.progress.read(bytes_count)
        self._probe.bytes_read(bytes_count)
        self._pay(self._throttle.read(bytes_count, sleep=self._nap, topic=self._topic_budget()))

    def wrote(self, bytes_count: int) -> None:
        """Account for bytes just written and wait for the throttle. Raises as `check`."""
        self.bytes_written += bytes_count
        self._probe.bytes_written(bytes_count)
        self._pay(self._throttle.wrote(bytes_count, sleep=self._nap, topic=self._topic_budget()))

    def check(self) -> None:
        """Raises `CleaningAborted` if the pass must stop or its log has changed."""
        self.progress.beat()
        if self._sleep(0):
            raise CleaningAborted("asked to stop")
        if self._is_stale():
            raise CleaningAborted("the log was truncated, deleted or reconfigured, or is held")

    def _nap(self, seconds: float) -> bool:
        """Sleep for the throttle. Returns True if the pass must stop."""
        self.progress.beat()
        self._topic_budget()  # A wait follows a changed rate.
        return self._sleep(seconds) or self._is_stale()

    def _pay(self, seconds: float) -> None:
        if seconds > 0:
            self.throttled_seconds += seconds
            self.progress.throttled_seconds = self.throttled_seconds
            self._probe.throttled(seconds)
        self.check()


def unpaced_meter(probe: CleanerProbe | None = None) -> PassMeter:
    """Returns a meter that neither waits nor stops, for commands that read files themselves."""
    return PassMeter(
        throttle=Throttle(clock=lambda: 0.0),
        probe=probe or SilentProbe(),
        sleep=lambda seconds: False,
        is_stale=lambda: False,
    )
