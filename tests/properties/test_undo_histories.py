"""Histories of writes, passes, undos, restarts and deletions, against a model.

The model has the records of the log as a list, and for each pass that can be undone the list from before
it, to which later appends are added. An undo must lead to that list, from the log start on.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from protocol.wire.numbers import Offset
from storage.files.errors import UndoRefused
from storage.files.paths import parse_segment_file
from storage.undo.undo_file import EndReason
from tests.crash.test_cleaning_crash_states import append_transaction
from tests.harness.compacted_log import CONFIG, CompactedLog

UNDO_MS = 1000
KEEPING = replace(
    CONFIG,
    segment_bytes=400,
    compaction_undo_ms=UNDO_MS,
    compaction_undo_bytes=6000,
    delete_retention_ms=500,
)
KEYS = st.sampled_from([b"a", b"b", b"c", b"d"])

Entry = tuple[int, bytes | None, bytes | None]
Before = tuple[list[Entry], int, list[tuple[int, int, int]]]
"""Records, clean offset and aborted transactions before a pass."""


class UndoneLog(RuleBasedStateMachine):
    """A log whose passes are undone now and then, beside the model."""

    def __init__(self) -> None:
        super().__init__()
        self.log = CompactedLog(KEEPING)
        self.records: list[Entry] = []
        self.before: dict[int, Before] = {}
        self.written = 0

    # ---------------------------------------------------------------- operations

    @rule(keys=st.lists(KEYS, min_size=1, max_size=5), is_tombstone=st.booleans())
    def append(self, keys: list[bytes], is_tombstone: bool) -> None:
        for key in keys:
            self.written += 1
            value = None if is_tombstone else b"%d" % self.written * 10
            self.log.append((key, value))
        self.take_appended()

    @rule(key=KEYS, aborted=st.booleans())
    def append_transaction(self, key: bytes, aborted: bool) -> None:
        append_transaction(self.log, key, aborted=aborted)
        self.take_appended()

    def take_appended(self) -> None:
        """Add the new records to the model, and to what each undo would lead to."""
        known = self.records[-1][0] if self.records else -1
        end = max([known, *(each[0][-1][0] for each in self.before.values() if each[0])])
        new = [each for each in self.log.pairs() if each[0] > end]
        self.records += new
        for records, _, _ in self.before.values():
            records += new

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule()
    def clean(self) -> None:
        before = (self.log.pairs(), int(self.log.log.clean_offset), self.aborted())
        report = self.log.clean()
        self.records = self.log.pairs()
        if report.undo_number:
            self.before[report.undo_number] = before

    @precondition(lambda self: self.before)
    @rule()
    def undo(self) -> None:
        number = max(self.before)
        records, clean_offset, aborted = self.before.pop(number)
        start = self.log.log.log_start_offset

        self.log.log.undo_pass(number)

        self.records = [each for each in records if each[0] >= start]
        assert self.log.log.clean_offset == max(clean_offset, start)
        restored = [each for each in aborted if each[2] >= max(start, clean_offset)]
        assert self.aborted()[: len(restored)] == restored

    @precondition(lambda self: len(self.before) > 1)
    @rule(data=st.data())
    def undo_out_of_order(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.before)[:-1]))
        with pytest.raises(UndoRefused, match="later passes"):
            self.log.log.undo_pass(number)

    @rule(is_clean=st.booleans())
    def restart(self, is_clean: bool) -> None:
        kept = self.log.log.passes_kept
        self.log.reopen(is_clean=is_clean)
        assert self.log.log.passes_kept == kept

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        log = self.log.log
        start = log.log_start_offset
        offset = Offset(start + int((log.high_watermark - start) * share * share))
        log.delete_records(offset)
        self.records = [each for each in self.records if each[0] >= offset]

    @rule(passed_ms=st.integers(1, 800))
    def let_time_pass(self, passed_ms: int) -> None:
        self.log.now_ms += passed_ms
        if self.log.log.kept_is_due(self.log.now_ms):
            self.log.log.expire_kept(self.log.now_ms)

    @precondition(lambda self: len(self.before) > 2)
    @rule()
    def drop(self) -> None:
        self.log.log.drop_passes_kept(EndReason.DISK)

    # ---------------------------------------------------------------- what holds after each

    def aborted(self) -> list[tuple[int, int, int]]:
        return list(self.log.log._states.aborted.rows)

    @invariant()
    def has_the_records_of_the_model(self) -> None:
        assert self.log.pairs() == self.records

    @invariant()
    def keeps_the_passes_that_it_says(self) -> None:
        kept = {each.number for each in self.log.log.passes_kept}
        assert kept <= set(self.before)
        gone = set(self.before) - kept
        assert not gone or not kept or max(gone) < min(kept)
        for number in gone:
            assert self.log.log.undo_refusal(number)
            del self.before[number]

    @invariant()
    def keeps_no_other_files_and_stays_within_its_bytes(self) -> None:
        log = self.log.log
        files = [parse_segment_file(name) for name in self.log.files()]
        names = {(each.base_offset, each.version) for each in files if each is not None}
        listed = {(each.base_offset, each.file_version) for each in log.segments}
        kept = {
            (row.base_offset, row.file_version) for each in log.passes_kept for row in each.sources
        }
        assert names == listed | kept
        assert log.kept_bytes <= KEEPING.compaction_undo_bytes


def test_an_undo_leads_to_the_log_before_the_pass_with_what_was_appended_since() -> None:
    run_state_machine_as_test(
        UndoneLog, settings=settings(max_examples=40, stateful_step_count=30, deadline=None)
    )
