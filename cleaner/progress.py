"""How far a pass is: its phase, the bytes done of those planned, and when it may be over.

    index    what has no key sidecar is read once      |---- planned ----|
    mark     sidecars are scanned, once or twice for each part of the hash space   |-- planned --|
    recopy   every group is read once with its sidecars, and written     |---- planned ----|
    verify   between groups, their output is read again     |- planned -|

A plan is what is known at the time: until the records are marked, all segments are expected to be
rewritten. Done never passes planned, and both are the same at the end.

What is left takes as long by the byte as its phase has taken so far, throttle included; of a phase that
has not begun, as the others let one expect.

`PassProgress` is written by the one thread that runs the pass. Any thread reads it without a lock: each
number is one object, and a picture that is a chunk old in one of them is good enough to be shown.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass


class Phase(enum.Enum):
    """What a pass is doing."""

    WAITING = "waiting"
    INDEX = "index"
    MARK = "mark"
    RECOPY = "recopy"
    VERIFY = "verify"
    SEARCH = "search"
    """Not a pass: a key is looked for."""
    DIGEST = "digest"
    """Not a pass: the last records are summed."""


WEIGHTS = {Phase.MARK: 2.0, Phase.RECOPY: 2.0}
"""What a byte of a phase costs beside one of the others, before the phase has been seen: a sidecar's
byte stands for several of the log, and what is rewritten is read, judged and written."""

SEEN_SHARE = 0.02
"""So much of a phase must be done before its own rate is believed."""


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
        """What was done, in bytes of a phase of weight 1."""
        return self.done * WEIGHTS.get(self.phase, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressSnapshot:
    """A pass at one moment."""

    phase: Phase
    bytes_done: int
    """Bytes that its phases have gone through: of the log, of its key sidecars, of the output."""
    bytes_planned: int
    """What `bytes_done` is at the end, as far as that is known."""
    seconds: float
    """Since it began."""
    throttled_seconds: float
    eta_seconds: float | None
    """What it will still take at the rates it has had; None before it has moved."""

    @property
    def ratio(self) -> float:
        """The part that is done, 0 to 1."""
        return self.bytes_done / self.bytes_planned if self.bytes_planned else 0.0


class PassProgress:
    """The progress of one pass. Written by its thread only."""

    __slots__ = (
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
        """When the present phase began, or went on."""
        self._ended_at: float | None = None
        self.phase = Phase.WAITING
        self._planned = dict.fromkeys(Phase, 0)
        self._done = dict.fromkeys(Phase, 0)
        self._seconds = dict.fromkeys(Phase, 0.0)
        self.throttled_seconds = 0.0

    def start(self) -> None:
        """Count the time from now: it has a thread."""
        self._started_at = self._entered_at = self._clock()

    def end(self) -> None:
        """Count the time no further: the pass has ended, one way or another."""
        self._ended_at = self._clock()

    def expect_left(self, phase: Phase, bytes_count: int) -> None:
        """Plan so many bytes for the rest of a phase; corrects what was planned for it before."""
        self._planned[phase] = self._done[phase] + bytes_count

    def enter(self, phase: Phase) -> None:
        """Go on with a phase; what is read from now on is its."""
        now = self._clock()
        self._seconds[self.phase] += now - self._entered_at
        self.phase, self._entered_at = phase, now

    def read(self, bytes_count: int) -> None:
        """So many bytes were read."""
        self._done[self.phase] += bytes_count

    def snapshot(self) -> ProgressSnapshot:
        """The pass as it is now. Any thread."""
        ended_at = self._clock() if self._ended_at is None else self._ended_at
        phases = [self._phase(phase, ended_at) for phase in Phase]
        return ProgressSnapshot(
            phase=self.phase,
            bytes_done=sum(each.done for each in phases),
            bytes_planned=sum(each.planned for each in phases),
            seconds=ended_at - self._started_at,
            throttled_seconds=self.throttled_seconds,
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
    """How long the rest of all phases takes, at the rates so far; None if nothing was done. Pure."""
    seen = [each for each in phases if each.planned]
    weighted = sum(each.weighted for each in seen)
    seconds = sum(each.seconds for each in seen)
    if weighted <= 0 or seconds <= 0:
        return None
    return sum(each.left * _seconds_a_byte(each, seconds / weighted) for each in seen)


def _seconds_a_byte(each: PhaseProgress, otherwise: float) -> float:
    """By the phase's own rate, if that is known; `otherwise` is that of a phase of weight 1."""
    if each.done > SEEN_SHARE * each.planned and each.seconds > 0:
        return each.seconds / each.done
    return otherwise * WEIGHTS.get(each.phase, 1.0)
