"""What a pass has still to rewrite, as its progress is told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from cleaner.progress import PassProgress, Phase
from storage.manifest import SegmentRow


class Cost(NamedTuple):
    """What rewriting a segment takes, in bytes."""

    recopied: int
    """Read of it and its sidecar."""
    verified: int
    """About what is written, and read again; 0 where nothing is verified."""


class MarkLeft:
    """The sidecars that are still to be scanned, in this window and in later ones."""

    __slots__ = ("_later_bytes", "_parts", "_progress")

    def __init__(self, progress: PassProgress) -> None:
        self._progress = progress
        self._parts = 1
        """Into how many parts the hash space is divided, as far as that is known."""
        self._later_bytes = 0

    def begin_window(self, later_bytes: int) -> None:
        """Tell that a window begins; for each part so much is scanned for those behind it."""
        self._progress.enter(Phase.MARK)
        self._later_bytes = later_bytes

    def tell(self, bytes_left: int, parts_left: int) -> None:
        """Tell what is left of this window, and how many parts are after the present one."""
        self._parts = max(self._parts, parts_left + 1)
        self._progress.expect_left(Phase.MARK, bytes_left + self._parts * self._later_bytes)


class WorkLeft:
    """The groups of a window that are still to be rewritten. Used by the pass's one thread."""

    __slots__ = ("_costs", "_progress", "_recopied", "_verified")

    def __init__(
        self,
        progress: PassProgress,
        costs: Mapping[SegmentRow, Cost],
        groups: Iterable[Sequence[SegmentRow]],
        *,
        later_bytes: int,
    ) -> None:
        """Tell of all groups; `later_bytes` may have to be recopied behind them."""
        # Constant after construction.
        self._progress = progress
        self._costs = costs
        # State.
        self._recopied = later_bytes
        self._verified = 0
        for group in groups:
            self._add(group, 1)
        self._tell()

    def done(self, group: Sequence[SegmentRow]) -> None:
        """Tell that a group was rewritten."""
        self._add(group, -1)
        self._tell()

    def _add(self, group: Sequence[SegmentRow], times: int) -> None:
        self._recopied += times * sum(self._costs[row].recopied for row in group)
        self._verified += times * sum(self._costs[row].verified for row in group)

    def _tell(self) -> None:
        self._progress.expect_left(Phase.RECOPY, self._recopied)
        self._progress.expect_left(Phase.VERIFY, self._verified)
