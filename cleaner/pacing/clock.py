"""The clock for delete horizons, protected against steps of the wall clock.

Delete horizons are promises in wall time, a day or more ahead, so a wall clock that is wrong for a
moment could end them all at once. `HorizonClock` compares the wall clock with the monotonic clock. After
a step of more than `STEP_MS_MAX`, until the new wall time has held for `TRUST_MS`, a horizon counts as
passed only if it has passed by both clocks, and new horizons count from the later of both.
"""

from __future__ import annotations

import logging
from typing import Protocol

_log = logging.getLogger("cleaner.pacing.clock")

STEP_MS_MAX = 3_600_000
"""A step up to this size is an ordinary correction and is accepted at once."""

TRUST_MS = 86_400_000
"""How long a stepped wall clock has to hold before horizons follow it."""


class Clock(Protocol):
    """The two clocks of a machine."""

    def now_ms(self) -> int:
        """Wall time in ms since 1970; it may step, in either direction."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary moment; never goes back."""


class HorizonClock:
    """A wall clock for delete horizons that does not trust steps. Owned by the cleaner's pool."""

    __slots__ = ("_anchor_ms", "_clock", "_stepped_anchor_ms", "_stepped_at_ms")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # State: wall time at monotonic zero, as trusted, and as it is since a step, if there was one.
        self._anchor_ms = self._wall_anchor_ms()
        self._stepped_anchor_ms: int | None = None
        self._stepped_at_ms = 0

    def read(self) -> tuple[int, int]:
        """Returns the time up to which horizons have passed, and the time from which new ones count."""
        self._observe()
        elapsed = self._elapsed_ms()
        anchors = {self._anchor_ms, self._wall_anchor_ms()}
        return min(anchors) + elapsed, max(anchors) + elapsed

    def _observe(self) -> None:
        anchor, elapsed = self._wall_anchor_ms(), self._elapsed_ms()
        if abs(anchor - self._anchor_ms) <= STEP_MS_MAX:
            self._anchor_ms, self._stepped_anchor_ms = anchor, None
            return
        stepped = self._stepped_anchor_ms
        if stepped is None or abs(anchor - stepped) > STEP_MS_MAX:
            self._stepped_at_ms = elapsed
            _log.warning(
                "the wall clock stepped by %d s: delete horizons wait until it has held for %d h",
                (anchor - self._anchor_ms) // 1000,
                TRUST_MS // 3_600_000,
            )
        self._stepped_anchor_ms = anchor
        if elapsed - self._stepped_at_ms >= TRUST_MS:
            self._anchor_ms, self._stepped_anchor_ms = anchor, None

    def _wall_anchor_ms(self) -> int:
        return self._clock.now_ms() - self._elapsed_ms()

    def _elapsed_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)
