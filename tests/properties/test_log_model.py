"""A log and a plain list of records, side by side, through every operation in any order."""

from __future__ import annotations

import os

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Epoch, Offset
from storage.segment.reader import Isolation
from tests.harness.log_builder import end_of, records_in
from tests.harness.log_home import read_all
from tests.properties.log_operations import LogOperations


class LogMachine(LogOperations):
    """What must hold of the log beside the model, and how it may be read."""

    # ---------------------------------------------------------------- what must hold

    @invariant()
    def numbers_are_in_order(self) -> None:
        if hasattr(self, "log"):
            log = self.log
            assert (log.log_start_offset, log.log_end_offset) == (self.start, self.end)
            assert log.log_start_offset <= log.last_stable_offset <= log.high_watermark
            assert log.high_watermark <= log.log_end_offset
            assert not self.home.failures

    @invariant()
    def every_record_is_read_where_it_was(self) -> None:
        if hasattr(self, "log"):
            found = {r.offset: (r.timestamp, r.key, r.value) for r in read_all(self.log)}
            below = {at: r for at, r in self.records.items() if at < self.log.high_watermark}
            assert found == below

    @invariant()
    def committed_readers_see_what_was_committed(self) -> None:
        if hasattr(self, "log"):
            self.transactions.check(self.log, self.records)

    @rule(data=st.data(), max_bytes=st.integers(0, 400), whole=st.booleans())
    def read_anywhere(self, data: st.DataObject, max_bytes: int, whole: bool) -> None:
        offset = data.draw(st.integers(max(0, self.start - 2), self.end + 2))
        result = self.log.reader.read(
            Offset(offset),
            max_bytes=max_bytes,
            whole_first_batch=whole,
            isolation=Isolation.READ_UNCOMMITTED,
        )
        if not self.start <= offset <= self.end:
            assert result is ErrorCode.OFFSET_OUT_OF_RANGE
            return
        assert not isinstance(result, ErrorCode)
        visible = [at for at in sorted(self.records) if offset <= at < self.log.high_watermark]
        answer = b"".join(region.read_bytes() for region in result.regions)
        for region in result.regions:
            region.release()
        found = [r.offset for r in records_in(answer) if r.offset >= offset]
        assert found == visible[: len(found)]
        if visible and whole:
            assert end_of(answer) > offset
        if not whole:
            assert len(answer) <= max_bytes

    @rule(isolation=st.sampled_from(Isolation))
    def read_from_every_offset(self, isolation: Isolation) -> None:
        is_committed = isolation is Isolation.READ_COMMITTED
        bound = self.log.last_stable_offset if is_committed else self.log.high_watermark
        visible = [at for at in sorted(self._visible()) if at < bound]
        for offset in range(self.start, self.end + 1):
            result = self.log.reader.read(
                Offset(offset), max_bytes=1, whole_first_batch=True, isolation=isolation
            )
            assert not isinstance(result, ErrorCode)
            assert result.high_watermark == self.log.high_watermark
            assert result.log_start_offset == self.start
            answer = b"".join(region.read_bytes() for region in result.regions)
            for region in result.regions:
                region.release()
            found = [r.offset for r in records_in(answer) if r.offset >= offset]
            following = [at for at in visible if at >= offset]
            # A batch may end before the offset that was asked for: the client continues after it.
            assert found == following[: len(found)]
            assert bool(answer) >= bool(found)
            if following:
                assert end_of(answer) > offset

    @rule()
    def find_where_epochs_end(self) -> None:
        there = [each for each in self.epochs if each[2] > self.start]
        for epoch in {each[0] for each in there}:
            last = max(end for its, _, end in there if its == epoch)
            following = [base for its, base, _ in there if its > epoch]
            found, end = self.log.reader.end_offset_for_epoch(Epoch(epoch))
            assert found == epoch
            assert last <= end <= min(following, default=self.end)

    @rule(data=st.data())
    def find_by_time(self, data: st.DataObject) -> None:
        timestamp = data.draw(st.integers(990, self.clock + 10))
        found = self.log.reader.offset_for_timestamp(timestamp)
        visible = self._visible()
        first = next((at for at in sorted(visible) if visible[at][0] >= timestamp), None)
        assert (None if found is None else found.offset) == first

    @rule()
    def find_the_youngest(self) -> None:
        found = self.log.reader.offset_of_max_timestamp()
        visible = self._visible()
        if not visible:
            assert found is None
            return
        youngest = max(record[0] for record in visible.values())
        first = next(at for at in sorted(visible) if visible[at][0] == youngest)
        assert found is not None
        assert (found.timestamp, found.offset) == (youngest, first)

    def _visible(self) -> dict[int, tuple[int, bytes | None, bytes | None]]:
        return {at: r for at, r in self.records.items() if at < self.log.high_watermark}


LogMachine.TestCase.settings = settings(
    max_examples=3000 if "KOMPAKT_SOAK" in os.environ else 80,
    stateful_step_count=80 if "KOMPAKT_SOAK" in os.environ else 40,
    deadline=None,
    print_blob=True,
)
TestLogModel = LogMachine.TestCase
