"""The undecided transactions of a log, at which read_committed consumers must stop.

    first offsets     A   B       C                  of transactions without a marker, in log order
                      |...|.......|..........a...........b....
    markers                                  |  high watermark  not readable yet: A is still unstable

A transaction is unstable from its first batch until its marker is below the high watermark. The first
unstable offset is updated on every change, so that reading it costs nothing.
Source: Apache Kafka, ProducerStateManager.java (`firstUnstableOffset`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from itertools import islice

from protocol.wire.numbers import OFFSET_MAX, Offset, ProducerId
from storage.threads import any_thread, loop_thread

NOT_OPEN = Offset(-1)


@any_thread
class OpenTransactions:
    """The unstable transactions of one log."""

    __slots__ = ("_ended", "_first_offsets", "first_unstable")

    def __init__(self, open_since: Iterable[tuple[ProducerId, Offset]] = ()) -> None:
        """Start from (producer id, first offset) pairs of the producers with an open transaction."""
        in_order = sorted(open_since, key=lambda each: each[1])
        # State: by producer id, in order of first offsets, because transactions begin at the log's end.
        # Plain containers, because most of ten thousand logs never have a transaction.
        self._first_offsets = dict(in_order)
        # (marker offset, first offset); both grow. A later marker with an earlier first offset makes
        # the entries before it irrelevant.
        self._ended: list[tuple[Offset, Offset]] = []
        self.first_unstable = OFFSET_MAX
        """The first offset of the first unstable transaction; `OFFSET_MAX` if there is none."""
        self._update_first_unstable()

    def __len__(self) -> int:
        """Returns the number of transactions without a marker."""
        return len(self._first_offsets)

    @loop_thread
    def begin(self, producer_id: ProducerId, first_offset: Offset) -> None:
        """Add a transactional batch at the log's end, the first of its transaction or a later one."""
        if producer_id not in self._first_offsets:
            self._first_offsets[producer_id] = first_offset
            self.first_unstable = min(self.first_unstable, first_offset)
            self._check_last_began_last()

    def _check_last_began_last(self) -> None:
        last_two = [*islice(reversed(self._first_offsets.values()), 2)]
        assert last_two == sorted(last_two, reverse=True)
        assert not last_two or self.first_unstable <= last_two[0]

    @loop_thread
    def end(self, producer_id: ProducerId, marker_offset: Offset) -> Offset:
        """Add a marker at the log's end. Returns its transaction's first offset, -1 if none was open."""
        first_offset = self._first_offsets.pop(producer_id, NOT_OPEN)
        self._add_ended(marker_offset, first_offset)
        assert self.first_unstable <= first_offset or first_offset < 0, (
            "its marker is not readable yet"
        )
        return first_offset

    def _add_ended(self, marker_offset: Offset, first_offset: Offset) -> None:
        if first_offset < 0:
            return
        while self._ended and self._ended[-1][1] >= first_offset:
            self._ended.pop()
        self._ended.append((marker_offset, first_offset))

    @loop_thread
    def take_run(
        self,
        ended: Iterable[tuple[ProducerId, Offset, Offset]],
        begun: Iterable[tuple[ProducerId, Offset]],
    ) -> None:
        """Add a run of batches at the log's end.

        Args:
            ended: each marker in order: the producer's id, the first offset of its transaction (-1: not
                in the run), and the marker's own offset.
            begun: the producers with a transaction that is open after the run, and its first offset in
                the run.
        """
        for producer_id, first_offset, marker_offset in ended:
            first_offset = self._first_offsets.pop(producer_id, first_offset)
            self._add_ended(marker_offset, first_offset)
        for producer_id, first_offset in sorted(begun, key=lambda each: each[1]):
            self._first_offsets.setdefault(producer_id, first_offset)
        self._update_first_unstable()
        self._check_last_began_last()

    @loop_thread
    def advance(self, high_watermark: Offset) -> None:
        """Forget the transactions whose markers are now below the high watermark."""
        if not self._ended or self._ended[0][0] >= high_watermark:
            return
        count = bisect_left(self._ended, high_watermark, key=lambda each: each[0])
        del self._ended[:count]
        self._update_first_unstable()

    def keep_ended(self, before: OpenTransactions, end_offset: Offset) -> None:
        """Take over, after a truncation, the markers of `before` below `end_offset`."""
        self._ended = [each for each in before._ended if each[0] < end_offset]
        self._update_first_unstable()

    def _update_first_unstable(self) -> None:
        first_open = next(iter(self._first_offsets.values()), OFFSET_MAX)
        first_ended = self._ended[0][1] if self._ended else OFFSET_MAX
        self.first_unstable = min(first_open, first_ended)
