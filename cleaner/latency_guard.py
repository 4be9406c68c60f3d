"""The latency guard: how fast the cleaner may go so that produces stay as quick as they were. Pure.

    no produces                            no limit: nobody is disturbed
    produces, the cleaner at rest          their 99th percentile is the quiet time's; a pass will begin
                                           at START
    produces, the cleaner at work          p99 > 2 x quiet: half the rate, not below FLOOR
                                           else: one STEP more, if the rate is what holds the cleaner

At FLOOR the cleaner disturbs hardly anybody, so what is measured there counts as quiet time: where
produces have become slower for another reason, the guard learns that and lets go.

Source: the additive increase and multiplicative decrease of TCP (RFC 5681); that an allowance grows only
while it is used is RFC 7661's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

MEGABYTE = 1e6
START = 100 * MEGABYTE
"""Measured on one disk: unpaced, a synced produce has a p99 of 80 to 200 ms, at 100 MB/s 1.5 ms."""
FLOOR = 4 * MEGABYTE
CEILING = 1000 * MEGABYTE
STEP = 10 * MEGABYTE

TOLERANCE = 2.0
"""Produces may take so many times as long as in quiet time."""
JUDGED_PRODUCES_MIN = 50
"""Of fewer produces the 99th percentile says nothing."""
LEARNING_SHARE = 0.2
"""How much one quiet window counts against all before it."""
LEARNING_SHARE_AT_FLOOR = 0.02
"""A window at FLOOR counts less: some of its latency may still be the cleaner's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyWindow:
    """What was seen in a stretch of time."""

    seconds: float
    produces: int
    p99_seconds: float
    """Of the produces, inside the broker; 0 if there were none."""
    cleaner_bytes: int
    """What the cleaner read and wrote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardState:
    """What the guard has decided, and by what it judges."""

    rate: float = math.inf
    """Bytes per second that the cleaner may read and write."""
    quiet_p99: float | None = None
    """Seconds; None before any was seen."""


def after_window(state: GuardState, window: LatencyWindow) -> GuardState:
    """What the guard decides once it has seen a window."""
    if window.produces == 0:
        return GuardState(rate=math.inf, quiet_p99=state.quiet_p99)
    rate = min(state.rate, START) if math.isinf(state.rate) else state.rate
    if window.produces < JUDGED_PRODUCES_MIN:
        return GuardState(rate=rate, quiet_p99=state.quiet_p99)
    quiet_p99 = _learned(state, window)
    if window.cleaner_bytes == 0:
        return GuardState(rate=START, quiet_p99=quiet_p99)
    if window.p99_seconds > TOLERANCE * quiet_p99:
        return GuardState(rate=max(rate / 2, FLOOR), quiet_p99=quiet_p99)
    if window.cleaner_bytes >= rate * window.seconds / 2:
        rate = min(rate + STEP, CEILING)
    return GuardState(rate=rate, quiet_p99=quiet_p99)


def _learned(state: GuardState, window: LatencyWindow) -> float:
    """The quiet time's p99: an average over quiet windows, and over those that were even faster."""
    before, seen = state.quiet_p99, window.p99_seconds
    if before is None:
        return seen
    if window.cleaner_bytes == 0 or seen < before:
        return before + LEARNING_SHARE * (seen - before)
    share = LEARNING_SHARE_AT_FLOOR if state.rate <= FLOOR else 0.0
    return before + share * (seen - before)
