"""The offsets of a log between which its readers read.

    log start        last stable      high watermark      log end
        |--- sealed segments ---|--- active segment ---------|

log start <= last stable <= high watermark <= log end. Only a truncation or a
replacement moves one of them back.
"""

from __future__ import annotations

from protocol.wire.numbers import Offset
from storage.state.log_states import LogStates
from storage.threads import any_thread


@any_thread
class LogOffsets:
    """The four offsets of one log. Its `PartitionLog` owns it."""

    __slots__ = ("_states", "end", "high_watermark", "start")

    def __init__(self, states: LogStates, *, start: Offset, end: Offset) -> None:
        # Constant after construction
        self._states = states
        # State
        self.start = start
        """The first offset that may be read. A worker moves it, together with the segments."""
        self.end = end
        """The offset of the next record. The loop moves it with each append."""
        self.high_watermark = end
        """The end of what may be read. `server/durability/group_commit.py` moves it, after a sync or at
        once with each append."""

    @property
    def last_stable(self) -> Offset:
        """The end of the committed part, at which read_committed consumers stop.

        It is below the high watermark while a transaction has no marker below that.
        """
        first_unstable = self._states.transactions.first_unstable
        return max(self.start, min(self.high_watermark, first_unstable))

    def advance_high_watermark(self, offset: Offset) -> None:
        """Advance the high watermark to `offset`, at most to the log end."""
        self.high_watermark = max(self.high_watermark, min(offset, self.end))
        assert self.start <= self.high_watermark <= self.end

    def replace(self, start: Offset, end: Offset) -> None:
        """Take the offsets of another log, all of which is synced."""
        self.start = start
        self.end = self.high_watermark = end
        assert self.start <= self.end

    def truncate(self, start: Offset, end: Offset) -> None:
        """Follow a truncation, after which the log has the offsets from `start` to `end`."""
        self.start = start
        self.end = end
        self.high_watermark = max(start, min(self.high_watermark, end))
        assert self.start <= self.high_watermark <= self.end
