"""The progress of a pass: its phase, the bytes done and planned, and the estimated remaining time.

    index    segments without a key sidecar are read once     |---- planned ----|
    mark     sidecars are scanned, once or twice for each part of the hash space   |-- planned --|
    compare  with compaction.compare.keys: superseded records and their winners are read once more
    recopy   every group is read once with its sidecars, and written     |---- planned ----|
    verify   between groups, their output is read again     |- planned -|

The planned bytes are an estimate from what is known at the time: until the records are marked, all
segments are expected to be rewritten. `done` never exceeds `planned`, and both are equal at the end.

The remaining time assumes that a phase continues at its rate so far, throttle included; the rate of a
phase that has not begun is estimated from the others.

Only the thread that runs the pass writes to `PassProgress`. Any thread reads it without a lock: each
number is one object, and a snapshot in which one of them is a chunk old is good enough for display.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from storage.threads import any_thread


class Phase(enum.Enum):
    """The phases of a pass, and of the other tasks."""

    WAITING = "waiting"
    INDEX = "index"
    MARK = "mark"
    COMPARE = "compare"
    """Keys are compared themselves (`compaction.compare.keys`)."""
    RECOPY = "recopy"
    VERIFY = "verify"
    SEARCH = "search"
    """Not a pass: the search for a key."""
    DIGEST = "digest"
    """Not a pass: the digest over the last records of a log."""
    COUNT = "count"
    """Not a pass: the keys of a log are counted."""


WEIGHTS = {Phase.MARK: 2.0, Phase.RECOPY: 2.0}
"""The relative cost of a byte in a phase, until its own rate is known: a sidecar's byte stands for
several bytes of the log, and rewritten bytes are read, judged and written. Other phases have weight
1."""

SEEN_SHARE = 0.02
"""The share of a phase that must be done before its own rate is used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseProgress:
    """One phase at one moment."""

    phase: Phase
    done: int
    planned: int
    seconds: float

    @property
    def left(self) -> int:
        return max(self.planned - self.done, 0)

    @property
    def weighted(self) -> float:
        """The bytes done, times the weight of the phase."""
        return self.done * WEIGHTS.get(self.phase, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressSnapshot:
    """A pass at one moment."""

    phase: Phase
    bytes_done: int
    """Bytes that its phases have read: of the log, of its key sidecars and of the output."""
    bytes_planned: int
    """The expected value of `bytes_done` at the end."""
    seconds: float
    """Since it began."""
    throttled_seconds: float
    stalled_seconds: float
    """Since it last read or wrote anything, slept for the throttle, or asked whether to stop."""
    eta_seconds: float | None
    """Estimated remaining time at the rates so far; None before the first bytes."""

    @property
    def ratio(self) -> float:
        """The share that is done, 0 to 1."""
        return self.bytes_done / self.bytes_planned if self.bytes_planned else 0.0


class PassProgress:
    """The progress of one pass. Written by its thread only."""

    __slots__ = (
        "_beat_at",
        "_clock",
        "_done",
        "_ended_at",
        "_entered_at",
        "_planned",
        "_seconds",
        "_started_at",
        "phase",
        "throttled_seconds",
    )

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` gives monotonic seconds."""
        # Constant after construction.
        self._clock = clock
        # State.
        self._started_at = clock()
        self._entered_at = self._started_at
        """When the current phase began or was resumed."""
        self._beat_at = self._started_at
        self._ended_at: float | None = None
        self.phase = Phase.WAITING
        self._planned = dict.fromkeys(Phase, 0)
        self._done = dict.fromkeys(Phase, 0)
        self._seconds = dict.fromkeys(Phase, 0.0)
        self.throttled_seconds = 0.0

    def start(self) -> None:
        """Start counting the time: the pass has a thread now."""
        self._started_at = self._entered_at = self._beat_at = self._clock()

    def beat(self) -> None:
        """Note that the pass still works, even if it reads nothing now."""
        self._beat_at = self._clock()

    def end(self) -> None:
        """Stop counting the time: the pass has ended."""
        self._ended_at = self._clock()

    def expect_left(self, phase: Phase, bytes_count: int) -> None:
        """Set how many bytes are left in a phase; replaces earlier estimates."""
        self._planned[phase] = self._done[phase] + bytes_count

    def enter(self, phase: Phase) -> None:
        """Enter or resume a phase; bytes read from now on count for it."""
        now = self._clock()
        self._seconds[self.phase] += now - self._entered_at
        self.phase, self._entered_at = phase, now

    def read(self, bytes_count: int) -> None:
        """Count bytes that were read in the current phase."""
        self._done[self.phase] += bytes_count

    @any_thread
    def snapshot(self) -> ProgressSnapshot:
        """Returns the current progress."""
        ended_at = self._clock() if self._ended_at is None else self._ended_at
        phases = [self._phase(phase, ended_at) for phase in Phase]
        return ProgressSnapshot(
            phase=self.phase,
            bytes_done=sum(each.done for each in phases),
            bytes_planned=sum(each.planned for each in phases),
            seconds=ended_at - self._started_at,
            throttled_seconds=self.throttled_seconds,
            stalled_seconds=max(ended_at - self._beat_at, 0.0),
            eta_seconds=eta_seconds(phases),
        )

    def _phase(self, phase: Phase, now: float) -> PhaseProgress:
        planned = self._planned[phase]
        since = max(now - self._entered_at, 0.0) if phase is self.phase else 0.0
        return PhaseProgress(
            phase=phase,
            done=min(self._done[phase], planned),
            planned=planned,
            seconds=self._seconds[phase] + since,
        )


def eta_seconds(phases: Iterable[PhaseProgress]) -> float | None:
    """Returns the remaining time of all phases at the rates so far; None if nothing was done. Pure."""
    seen = [each for each in phases if each.planned]
    weighted = sum(each.weighted for each in seen)
    seconds = sum(each.seconds for each in seen)
    if weighted <= 0 or seconds <= 0:
        return None
    return sum(each.left * _seconds_per_byte(each, seconds / weighted) for each in seen)


def _seconds_per_byte(each: PhaseProgress, otherwise: float) -> float:
    """Returns the phase's own rate if it is known, else `otherwise` (for weight 1) times its weight."""
    if each.done > SEEN_SHARE * each.planned and each.seconds > 0:
        return each.seconds / each.done
    return otherwise * WEIGHTS.get(each.phase, 1.0)
