"""How far a pass is: its phase, the bytes done of those planned, and when it may be over.

    index    what has no key sidecar is read once      |---- planned ----|
    mark     sidecars are scanned
    recopy   every group is read once, and written     |---------- planned ----------|
    verify   between groups, their output is read again

Only bytes of the log that a phase goes through count as done, so that done never passes the total; that
shrinks once it is known which segments are rewritten. What is written, and read again to verify it,
takes time all the same: `eta_seconds` has it from what the pass has measured of itself, throttle
included.

`PassProgress` is written by the one thread that runs the pass. Any thread reads it without a lock: each
number is one object, and a picture that is a chunk old in one of them is good enough to be shown.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass

IO_PER_REWRITTEN_BYTE = 3.0
"""Read, written and read again: what is expected of a group before the first one was done."""


class Phase(enum.Enum):
    """What a pass is doing."""

    WAITING = "waiting"
    INDEX = "index"
    MARK = "mark"
    RECOPY = "recopy"
    VERIFY = "verify"
    SEARCH = "search"
    """Not a pass: a key is looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressSnapshot:
    """A pass at one moment."""

    phase: Phase
    bytes_done: int
    """Bytes of the log that its phases have gone through; those without a sidecar count twice."""
    bytes_planned: int
    """What `bytes_done` is at the end."""
    seconds: float
    """Since it began."""
    throttled_seconds: float
    eta_seconds: float | None
    """What it will still take at the rate it has had; None before it has moved."""

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
        "_io_before_recopy",
        "_planned",
        "_started_at",
        "io_bytes",
        "phase",
        "throttled_seconds",
    )

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` gives monotonic seconds."""
        # Constant after construction.
        self._clock = clock
        # State.
        self._started_at = clock()
        self._ended_at: float | None = None
        self.phase = Phase.WAITING
        self._planned = dict.fromkeys(Phase, 0)
        self._done = dict.fromkeys(Phase, 0)
        self._io_before_recopy = 0
        self.io_bytes = 0
        """All that was read and written."""
        self.throttled_seconds = 0.0

    def start(self) -> None:
        """Count the time from now: it has a thread."""
        self._started_at = self._clock()

    def end(self) -> None:
        """Count the time no further: the pass has ended, one way or another."""
        self._ended_at = self._clock()

    def expect(self, phase: Phase, bytes_count: int) -> None:
        """Plan so many bytes for a phase; corrects what was planned for it before."""
        self._planned[phase] = bytes_count

    def enter(self, phase: Phase) -> None:
        """Go on with a phase; what is read from now on is its."""
        if self.phase is not phase and phase is Phase.RECOPY and not self._done[phase]:
            self._io_before_recopy = self.io_bytes
        self.phase = phase

    def read(self, bytes_count: int) -> None:
        """So many bytes were read."""
        self._done[self.phase] += bytes_count
        self.io_bytes += bytes_count

    def wrote(self, bytes_count: int) -> None:
        """So many bytes were written."""
        self.io_bytes += bytes_count

    def snapshot(self) -> ProgressSnapshot:
        """The pass as it is now. Any thread."""
        done = {phase: min(self._done[phase], planned) for phase, planned in self._planned.items()}
        ended_at = self._clock() if self._ended_at is None else self._ended_at
        seconds = ended_at - self._started_at
        return ProgressSnapshot(
            phase=self.phase,
            bytes_done=sum(done.values()),
            bytes_planned=sum(self._planned.values()),
            seconds=seconds,
            throttled_seconds=self.throttled_seconds,
            eta_seconds=eta_seconds(
                io_bytes=self.io_bytes,
                seconds=seconds,
                index_left=sum(
                    self._planned[phase] - done[phase] for phase in (Phase.INDEX, Phase.SEARCH)
                ),
                recopied=done[Phase.RECOPY],
                recopy_left=self._planned[Phase.RECOPY] - done[Phase.RECOPY],
                recopy_io_bytes=self.io_bytes - self._io_before_recopy,
            ),
        )


def eta_seconds(
    *,
    io_bytes: int,
    seconds: float,
    index_left: int,
    recopied: int,
    recopy_left: int,
    recopy_io_bytes: int,
) -> float | None:
    """What is left to read and write, at the rate so far; None if nothing was. Pure."""
    if io_bytes <= 0 or seconds <= 0:
        return None
    per_byte = recopy_io_bytes / recopied if recopied else IO_PER_REWRITTEN_BYTE
    return (index_left + recopy_left * per_byte) * seconds / io_bytes
