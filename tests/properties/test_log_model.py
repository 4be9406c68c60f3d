"""A log and a plain list of records, side by side, through every operation in any order."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
)

from protocol.error_codes import ErrorCode
from storage.errors import SwapRefused
from storage.log import Appended
from storage.reader import Isolation
from tests.harness.hand_cleaning import recopied, write_cleaned
from tests.harness.log_builder import batch_of, end_of, records_in, valid
from tests.harness.log_home import SMALL, Deferred, LogHome, read_all
from tests.harness.memory_fs import Loss, MemoryFileSystem

PAIRS = st.lists(
    st.tuples(st.sampled_from([b"a", b"b", b"c"]), st.one_of(st.none(), st.binary(max_size=60))),
    min_size=1,
    max_size=4,
)


RETAINING = replace(SMALL, cleanup_policy=("delete",), retention_ms=-1)


class LogMachine(RuleBasedStateMachine):
    """`records` is the model: (timestamp, key, value) by offset, of all batches in the log."""

    @initialize(inline=st.booleans())
    def begin(self, inline: bool) -> None:
        self.disk = MemoryFileSystem()
        self.home = LogHome(self.disk, background=Deferred(inline=inline))
        self.epoch = 1
        self.now_ms = 0
        self.clock = 1000
        self.log = self.home.create(epoch=1)
        self.records: dict[int, tuple[int, bytes | None, bytes | None]] = {}
        self.batches: list[tuple[int, int]] = []
        self.start = 0
        self.end = 0

    @rule(pairs=PAIRS, step=st.integers(-5, 5))
    def append(self, pairs: list[tuple[bytes | None, bytes | None]], step: int) -> None:
        self.clock += step
        times = range(self.clock, self.clock + len(pairs))
        appended = self.log.append_as_leader(
            valid(batch_of(pairs, timestamps=times)), now_ms=self.now_ms
        )
        assert appended == Appended(self.end, self.end + len(pairs))
        for at, (key, value) in enumerate(pairs):
            self.records[self.end + at] = (times[at], key, value)
        self.batches.append((self.end, self.end + len(pairs)))
        self.end += len(pairs)

    @rule(pairs=PAIRS, gap=st.integers(0, 4))
    def append_as_follower(self, pairs: list[tuple[bytes | None, bytes | None]], gap: int) -> None:
        base = self.end + gap
        batch = batch_of(pairs, base_offset=base, leader_epoch=self.epoch)
        appended = self.log.append_as_follower(valid(batch), now_ms=self.now_ms)
        assert appended == Appended(base, base + len(pairs))
        for at, (key, value) in enumerate(pairs):
            self.records[base + at] = (1000 + at, key, value)
        self.end = base + len(pairs)
        self.batches.append((base, self.end))

    @rule(gap=st.integers(0, 3))
    def advance_end(self, gap: int) -> None:
        self.log.advance_end(self.end + gap)
        if gap:
            self.batches.append((self.end, self.end + gap))
        self.end += gap

    @rule()
    def sync(self) -> None:
        end = self.log.sync()
        assert end == self.end
        self.log.advance_high_watermark(end)

    @rule()
    def roll(self) -> None:
        self.log.roll(self.now_ms)

    @rule(later_ms=st.sampled_from([1, 1000, 8 * 24 * 3600 * 1000]))
    def time_passes(self, later_ms: int) -> None:
        self.now_ms += later_ms
        self.log.roll_if_due(self.now_ms)

    @rule()
    def work_in_background(self) -> None:
        self.home.background.run_all()

    @rule(seed=st.integers(0, 1 << 20), is_stale=st.booleans())
    def swap(self, seed: int, is_stale: bool) -> None:
        random = Random(seed)
        view = self.log.cleaning_view()
        ready = [each for each in view.segments if each.row.end_offset <= view.high_watermark]
        if not ready:
            return
        first = random.randrange(len(ready))
        sources = ready[first : first + random.randrange(1, 4)]
        batches, dropped = recopied(
            sources, lambda _: random.random() < 0.5, view.producer_last_offsets
        )
        cut = random.randrange(len(batches) + 1)
        cleaned = write_cleaned(self.log, sources, batches, cut=cut)
        rows = [each.row for each in sources]
        if is_stale:
            with pytest.raises(SwapRefused):
                self.log.swap(rows, cleaned, generation=view.generation - 1, clean_offset=None)
            return
        self.log.swap(rows, cleaned, generation=view.generation, clean_offset=None)
        with pytest.raises(SwapRefused):
            self.log.swap(rows, cleaned, generation=view.generation, clean_offset=None)
        for offset in dropped:
            # Below the log start a segment may hold records that are deleted.
            self.records.pop(offset, None)

    @rule(left=st.integers(0, 1500))
    def retain(self, left: int) -> None:
        """Keep only so many bytes; a compacted log's policy says so for once."""
        before = self.log.segments
        self.log.update_config(replace(RETAINING, retention_bytes=left))
        if self.log.retention_is_due(self.now_ms):
            self.log.retain(self.now_ms)
        self.log.update_config(SMALL)
        start = self.log.log_start_offset
        assert start in {self.start, *(segment.end_offset for segment in before)}
        assert self.start <= start <= self.log.high_watermark
        self._start_at(start)

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        bound = self.log.high_watermark
        offset = data.draw(st.integers(max(0, self.start - 2), bound + 2))
        deleted = self.log.delete_records(offset)
        if offset > bound:
            assert deleted is ErrorCode.OFFSET_OUT_OF_RANGE
        else:
            self._start_at(max(self.start, offset))

    def _start_at(self, start: int) -> None:
        self.start = start
        self.records = {at: record for at, record in self.records.items() if at >= start}

    @rule(back=st.integers(0, 12))
    def truncate_to(self, back: int) -> None:
        offset = max(self.start, self.end - back)
        generation = self.log.generation
        self.log.truncate_to(offset)
        if offset == self.end:
            return
        assert self.log.generation > generation
        end = self.log.log_end_offset
        # Whole batches go; how far the end moves below `offset` is where such a batch began.
        crossing = [max(base, self.start) for base, stop in self.batches if base < offset < stop]
        assert end in {offset, *crossing}
        self.end = end
        self.batches = [batch for batch in self.batches if batch[1] <= end]
        self.records = {at: record for at, record in self.records.items() if at < end}

    @rule(ahead=st.integers(0, 5))
    def truncate_fully(self, ahead: int) -> None:
        self.start = self.end = self.end + ahead
        self.log.truncate_fully_and_start_at(self.start)
        self.records, self.batches = {}, []

    @rule()
    def stop_cleanly(self) -> None:
        self.home.background.run_all()
        self.log.close()
        self.disk = self.home.fs = self.disk.after_crash(Loss.EVERYTHING, Random(0))
        self._open(is_clean=True)

    @rule()
    def lose_the_process(self) -> None:
        """kill -9: what was written is there, what waited in the background is not."""
        self.home.background.waiting.clear()
        self.disk = self.home.fs = self.disk.after_crash(Loss.NOTHING, Random(0))
        self._open(is_clean=False)

    def _open(self, *, is_clean: bool) -> None:
        before = (self.log.log_start_offset, self.log.log_end_offset)
        self.epoch += 1
        self.log = self.home.open(epoch=self.epoch, is_clean=is_clean, now_ms=self.now_ms)
        assert (self.log.log_start_offset, self.log.log_end_offset) == before
        assert self.log.high_watermark == self.log.log_end_offset

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

    @rule(data=st.data(), max_bytes=st.integers(0, 400), whole=st.booleans())
    def read_anywhere(self, data: st.DataObject, max_bytes: int, whole: bool) -> None:
        offset = data.draw(st.integers(max(0, self.start - 2), self.end + 2))
        result = self.log.read(
            offset,
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

    @rule(data=st.data())
    def find_by_time(self, data: st.DataObject) -> None:
        timestamp = data.draw(st.integers(990, self.clock + 10))
        found = self.log.offset_for_timestamp(timestamp)
        visible = self._visible()
        first = next((at for at in sorted(visible) if visible[at][0] >= timestamp), None)
        assert (None if found is None else found.offset) == first

    @rule()
    def find_the_youngest(self) -> None:
        found = self.log.offset_of_max_timestamp()
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
    max_examples=60, stateful_step_count=40, deadline=None, print_blob=True
)
TestLogModel = LogMachine.TestCase
