"""The counts of a log's records, beside a plain list of them, through every operation in any order."""

from __future__ import annotations

import os

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from protocol.wire.numbers import Offset
from storage.counts.log_counts import (
    RecordsView,
    count_records,
    estimated_between,
    first_live_offset,
)
from storage.counts.segment_counts import ReadBudget
from storage.formats.config_property import LONG_MAX
from tests.properties.log_operations import LogOperations


class LiveRecordsMachine(LogOperations):
    """What is counted from any offset is what a consumer gets that reads on from there."""

    @rule(data=st.data())
    def count_from_anywhere(self, data: st.DataObject) -> None:
        """A count leaves a note in the segment; the next one, at another offset, starts from it."""
        for offset in data.draw(st.lists(st.integers(0, self.end + 2), min_size=1, max_size=4)):
            count = count_records(self._view(), Offset(offset), ReadBudget(LONG_MAX))
            assert count == (len(self._readable(offset)), True)

    @rule(data=st.data(), budget=st.integers(0, 300))
    def count_with_a_budget(self, data: st.DataObject, budget: int) -> None:
        offset = data.draw(st.integers(0, self.end + 2))
        count = count_records(self._view(), Offset(offset), ReadBudget(budget))
        readable = self._readable(offset)
        if count.is_exact:
            assert count.records == len(readable)
        offsets = self.log.high_watermark - max(offset, self.start)
        assert 0 <= count.records <= max(offsets, 0)

    @invariant()
    def the_first_live_offset_is_that_of_the_first_record(self) -> None:
        if hasattr(self, "log"):
            found = first_live_offset(self._view(), ReadBudget(LONG_MAX))
            assert found == next(iter(self._readable(0)), None)

    @invariant()
    def an_estimate_reaches_zero_and_the_whole(self) -> None:
        if hasattr(self, "log") and self.log.high_watermark == self.end:
            segments = self.log.segments
            assert estimated_between(segments, Offset(self.end), self.log.high_watermark) == 0
            if self.log.log_start_offset in {each.base_offset for each in segments}:
                start = self.log.log_start_offset
                whole = estimated_between(segments, start, self.log.high_watermark)
                assert whole == len(self._readable(0))

    def _view(self) -> RecordsView:
        view = self.log.records_view()
        assert view is not None
        return view

    def _readable(self, offset: int) -> list[int]:
        """Returns the offsets of the data records that a reader from `offset` on gets."""
        markers = self.transactions.markers
        return [
            at
            for at in sorted(self.records)
            if offset <= at < self.log.high_watermark and at not in markers
        ]


LiveRecordsMachine.TestCase.settings = settings(
    max_examples=3000 if "KOMPAKT_SOAK" in os.environ else 80,
    stateful_step_count=80 if "KOMPAKT_SOAK" in os.environ else 40,
    deadline=None,
    print_blob=True,
)
TestLiveRecords = LiveRecordsMachine.TestCase
