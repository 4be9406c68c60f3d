"""What a running pass has read and written, and whether it may go on.

Every step of a pass passes through here once a chunk: the bytes are counted, told to the probe,
paid to the throttle, and the wish to stop is noticed. So a pass stops within one chunk.
"""

from __future__ import annotations

from collections.abc import Callable

from cleaner.probe import CleanerProbe
from cleaner.progress import PassProgress
from cleaner.throttle import Throttle


class CleaningAborted(Exception):
    """A pass was asked to stop, or its log was truncated, deleted or reconfigured under it.

    Nothing is wrong: what the pass had swapped in stays, its other work is discarded.
    """


class PassMeter:
    """The account of one pass; used by the one thread that runs it."""

    __slots__ = (
        "_is_stale",
        "_probe",
        "_sleep",
        "_throttle",
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
    ) -> None:
        """
        Args:
            sleep: waits, and returns True as soon as the pass is to stop; `sleep(0)` asks only.
            is_stale: whether the log's generation has moved since the pass was planned.
            progress: what others see of the pass; nobody looks, by default.
        """
        # Constant after construction.
        self._throttle = throttle
        self._probe = probe
        self._sleep = sleep
        self._is_stale = is_stale
        self.progress = progress or PassProgress(lambda: 0.0)
        """Where the pass says which phase it is in."""
        # State: only grows.
        self.bytes_read = 0
        self.bytes_written = 0
        self.throttled_seconds = 0.0

    def read(self, bytes_count: int) -> None:
        """Account for bytes just read. Raises `CleaningAborted` as `check` does."""
        self.bytes_read += bytes_count
        self.progress.read(bytes_count)
        self._probe.bytes_read(bytes_count)
        self._pay(self._throttle.read(bytes_count, sleep=self._nap))

    def wrote(self, bytes_count: int) -> None:
        """Account for bytes just written. Raises `CleaningAborted` as `check` does."""
        self.bytes_written += bytes_count
        self._probe.bytes_written(bytes_count)
        self._pay(self._throttle.wrote(bytes_count, sleep=self._nap))

    def check(self) -> None:
        """Raises `CleaningAborted` when the pass is to stop or its log has changed."""
        if self._sleep(0):
            raise CleaningAborted("asked to stop")
        if self._is_stale():
            raise CleaningAborted("the log was truncated, deleted or reconfigured")

    def _nap(self, seconds: float) -> bool:
        """Sleep for the throttle; True when nobody needs the pass any more."""
        return self._sleep(seconds) or self._is_stale()

    def _pay(self, seconds: float) -> None:
        if seconds > 0:
            self.throttled_seconds += seconds
            self.progress.throttled_seconds = self.throttled_seconds
            self._probe.throttled(seconds)
        self.check()
