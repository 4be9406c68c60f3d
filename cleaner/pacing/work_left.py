"""Tracks the work that a pass has left, and reports it to its progress."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from cleaner.pacing.progress import PassProgress, Phase
from storage.formats.manifest import SegmentRow


class Cost(NamedTuple):
    """The cost of rewriting a segment, in bytes."""

    recopied: int
    """Bytes to read of the segment and its sidecar."""
    verified: int
    """Estimated bytes to write and read again; 0 without verification."""


class MarkLeft:
    """The bytes of sidecars that are still to be scanned, in this window and in later ones."""

    __slots__ = ("_later_bytes", "_parts", "_progress")

    def __init__(self, progress: PassProgress) -> None:
        self._progress = progress
        self._parts = 1
        """The largest known number of parts of the hash space."""
        self._later_bytes = 0

    def begin_window(self, later_bytes: int) -> None:
        """Start a window; `later_bytes` will be scanned for each part in the windows after it."""
        self._progress.enter(Phase.MARK)
        self._later_bytes = later_bytes

    def report(self, bytes_left: int, parts_left: int) -> None:
        """Report the bytes left in this window, and the number of parts after the current one."""
        self._parts = max(self._parts, parts_left + 1)
        self._progress.expect_left(Phase.MARK, bytes_left + self._parts * self._later_bytes)


class WorkLeft:
    """The groups of a window that are still to be rewritten. Used by the pass's thread only."""

    __slots__ = ("_costs", "_progress", "_recopied", "_verified")

    def __init__(
        self,
        progress: PassProgress,
        costs: Mapping[SegmentRow, Cost],
        groups: Iterable[Sequence[SegmentRow]],
        *,
        later_bytes: int,
    ) -> None:
        """Report all groups; `later_bytes` may have to be recopied after them."""
        # Constant after construction.
        self._progress = progress
        self._costs = costs
        # State.
        self._recopied = later_bytes
        self._verified = 0
        for group in groups:
            self._add(group, 1)
        self._report()

    def done(self, group: Sequence[SegmentRow]) -> None:
        """Report that a group was rewritten."""
        self._add(group, -1)
        self._report()

    def _add(self, group: Sequence[SegmentRow], times: int) -> None:
        self._recopied += times * sum(self._costs[row].recopied for row in group)
        self._verified += times * sum(self._costs[row].verified for row in group)

    def _report(self) -> None:
        self._progress.expect_left(Phase.RECOPY, self._recopied)
        self._progress.expect_left(Phase.VERIFY, self._verified)
