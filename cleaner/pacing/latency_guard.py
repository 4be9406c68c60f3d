"""The latency guard: limits the cleaner's rate so that produce requests do not get slower. Pure.

    no produces                            no limit: there is nothing to disturb
    produces, the cleaner idle             their 99th percentile is the quiet p99; the next pass starts
                                           at START
    produces, the cleaner at work          p99 > 2 x quiet p99: half the rate, not below FLOOR
                                           else, if the cleaner uses its rate: twice the rate up to the
                                           threshold, one STEP more above it
    produces begin beside a pass           START; this window shows nothing
    the backlog is late                    twice the rate, from START up to CEILING, at any p99

The threshold is half of the last rate that was too fast, or the highest rate that was not, since. So a
pass finds a rate that the disk bears within a few windows. Without a quiet time to compare with, the
rate grows by STEPs only.

The backlog is late if a pass runs, or a log waits for one, for longer than
log.cleaner.latency.guard.deadline.ms. Then compaction matters more than the latency of produces, or logs
would grow without end.

At FLOOR the cleaner hardly disturbs produces, so windows at FLOOR count as quiet too: if produces became
slower for another reason, the guard learns the new latency and raises the rate again.

Source: slow start, additive increase and multiplicative decrease as in TCP (RFC 5681); raising the limit
only while it is used is from RFC 7661.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

MEGABYTE = 1e6
START = 100 * MEGABYTE
"""Measured on one disk: the p99 of a synced produce is 80 to 200 ms beside an unthrottled pass, and 1.5
ms beside one at 100 MB/s."""
FLOOR = 4 * MEGABYTE
CEILING = 1000 * MEGABYTE
STEP = 10 * MEGABYTE

TOLERANCE = 2.0
"""Produces may take this many times the quiet p99."""
JUDGED_PRODUCES_MIN = 50
"""With fewer produces the 99th percentile means nothing."""
LEARNING_SHARE = 0.2
"""The weight of one quiet window against all earlier ones."""
LEARNING_SHARE_AT_FLOOR = 0.02
"""A window at FLOOR has less weight: the cleaner may still cause some of its latency."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyWindow:
    """Measurements over one window of time."""

    seconds: float
    produces: int
    p99_seconds: float
    """99th percentile of the produce latency inside the broker; 0 without produces."""
    cleaner_bytes: int
    """Bytes that the cleaner read and wrote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardState:
    """The guard's decision and the latency that it compares with."""

    rate: float = math.inf
    """Bytes per second that the cleaner may read and write."""
    quiet_p99: float | None = None
    """Seconds; None before the first measurement."""
    is_quiet_known: bool = False
    """Whether the cleaner rested in one of the measurements of quiet_p99."""
    threshold: float = math.inf
    """The rate up to which a rate doubles; infinite until one was too fast."""


def after_window(state: GuardState, window: LatencyWindow, *, is_late: bool = False) -> GuardState:
    """Returns the guard's state after a window; `is_late`: whether the backlog is late."""
    if window.produces == 0:
        return replace(state, rate=math.inf)
    if is_late and not math.isinf(state.rate):
        return replace(state, rate=min(max(2 * state.rate, START), CEILING))
    is_resting, is_unlimited = window.cleaner_bytes == 0, math.isinf(state.rate)
    if window.produces < JUDGED_PRODUCES_MIN:
        return replace(state, rate=START) if is_unlimited else state
    if is_unlimited and not is_resting:
        return replace(state, rate=START)
    state = replace(state, quiet_p99=_updated_quiet_p99(state, window))
    if is_resting:
        return replace(state, rate=START, is_quiet_known=True)
    return _judged(state, window)


def _judged(state: GuardState, window: LatencyWindow) -> GuardState:
    """Returns the state after a window beside a cleaner that had a rate."""
    assert state.quiet_p99 is not None
    rate = state.rate
    if window.p99_seconds > TOLERANCE * state.quiet_p99:
        rate = max(rate / 2, FLOOR)
        return replace(state, rate=rate, threshold=rate)
    if window.cleaner_bytes < rate * window.seconds / 2:
        return state
    threshold = max(state.threshold, rate)
    doubles = state.is_quiet_known and rate < threshold
    raised = min(2 * rate, threshold) if doubles else rate + STEP
    return replace(state, rate=min(raised, CEILING), threshold=threshold)


def _updated_quiet_p99(state: GuardState, window: LatencyWindow) -> float:
    """Returns the new quiet p99: an average over quiet windows and over busy ones that were faster."""
    before, seen = state.quiet_p99, window.p99_seconds
    if before is None:
        return seen
    if window.cleaner_bytes == 0 or seen < before:
        return before + LEARNING_SHARE * (seen - before)
    share = LEARNING_SHARE_AT_FLOOR if state.rate <= FLOOR else 0.0
    return before + share * (seen - before)
