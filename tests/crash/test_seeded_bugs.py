"""Bugs put in on purpose: the sweep over crash states must catch each of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from protocol.wire.numbers import Offset, ProducerId
from storage.files.files import FileSystem
from storage.files.paths import SEGMENT_KINDS
from storage.formats import key_sidecar
from storage.formats.key_sidecar import KeySidecar
from storage.formats.manifest import UNKNOWN, SegmentRow
from storage.log.cleaning import LogCleaning
from storage.log.commits import LogCommits
from storage.log.log_start import LogStart
from storage.log.segment_list import SegmentList
from storage.recovery.segment_sweep import SegmentSweep
from storage.segment import lookup
from storage.segment.segment import Segment
from storage.state import log_states
from storage.state.aborted_transactions import AbortedTransactions, Row
from storage.state.leader_epochs import LeaderEpochs
from storage.state.log_states import LogStates
from storage.state.open_transactions import OpenTransactions
from storage.state.producer_recovery import ProducerReplay
from tests.crash.sweep import caught
from tests.harness.memory_fs import Directory, MemoryFileSystem

Aborted = tuple[ProducerId, Offset, Offset, bool]
Patch = pytest.MonkeyPatch


def directories_are_never_synced(patch: Patch) -> None:
    patch.setattr(Directory, "sync", lambda _: None)


def swap_without_generation(patch: Patch) -> None:
    """A pass commits although the log was truncated or stopped to be compacted under it."""
    swap = LogCleaning.swap

    def careless(self: LogCleaning, *args: Any, generation: int, **names: Any) -> None:
        swap(self, *args, generation=self._list.generation, **names)

    patch.setattr(LogCleaning, "swap", careless)


def acknowledge_before_fsync(patch: Patch) -> None:
    patch.setattr(SegmentList, "sync", lambda self: self._offsets.end)


def offset_index_trusted_over_log(patch: Patch) -> None:
    patch.setattr(lookup, "_is_batch", lambda *_: True)


def time_index_trusted_over_log(patch: Patch) -> None:
    patch.setattr(lookup, "_is_youngest_of_batch", lambda *_: True)


def rolled_segment_removed_as_an_orphan(patch: Patch) -> None:
    patch.setattr(SegmentSweep, "_is_empty", lambda *_: True)


def commit_lists_what_is_not_synced(patch: Patch) -> None:
    patch.setattr(LogCommits, "_seal", lambda *_: None)


def recovery_point_ahead_of_the_sync(patch: Patch) -> None:
    patch.setattr(LogCommits, "_make_safe", lambda *_: None)


def log_start_shown_before_its_commit(patch: Patch) -> None:
    advance = LogCommits.advance_start

    def careless(self: LogCommits, start_offset: int) -> tuple[Segment, ...]:
        self._offsets.start = Offset(start_offset)
        return advance(self, Offset(start_offset))

    patch.setattr(LogCommits, "advance_start", careless)


def deleted_segments_removed_before_the_commit(patch: Patch) -> None:
    advance = LogCommits.advance_start

    def careless(self: LogCommits, start_offset: int) -> tuple[Segment, ...]:
        for segment in self._list.segments[:-1]:
            if segment.end_offset <= start_offset:
                segment.files.unlink(SEGMENT_KINDS)
        return advance(self, Offset(start_offset))

    patch.setattr(LogCommits, "advance_start", careless)


def manifest_written_in_place(patch: Patch) -> None:
    patch.setattr(MemoryFileSystem, "replace_durably", MemoryFileSystem.write_bytes)


def renames_of_a_swap_never_finished(patch: Patch) -> None:
    patch.setattr(SegmentSweep, "finish_renames", lambda *_: None)


def truncation_without_intent(patch: Patch) -> None:
    commit = LogCommits.commit

    def forgetful(self: LogCommits, *args: Any, truncate_to: int = UNKNOWN, **names: Any) -> None:
        commit(self, *args, **names)

    patch.setattr(LogCommits, "commit", forgetful)


def epochs_not_truncated(patch: Patch) -> None:
    patch.setattr(LeaderEpochs, "truncate_from_end", lambda *_, **__: None)


def producers_ahead_of_the_log(patch: Patch) -> None:
    """A roll's snapshot has the producers as they are when it is written, not as they were."""
    write = LogStates.write_snapshot
    patch.setattr(
        LogStates,
        "write_snapshot",
        lambda self, offset, _: write(self, offset, self.producers),
    )


def log_start_past_what_is_synced(patch: Patch) -> None:
    delete = LogStart.delete_records
    patch.setattr(
        LogStart,
        "delete_records",
        lambda self, offset, _sync: delete(self, offset, lambda: None),
    )


def segments_removed_before_the_log_start_is_committed(patch: Patch) -> None:
    advance = LogCommits.advance_start

    def hasty(self: LogCommits, start_offset: int) -> tuple[Segment, ...]:
        for segment in self._list.segments[:-1]:
            if segment.end_offset <= start_offset:
                segment.files.remove()
        return advance(self, Offset(start_offset))

    patch.setattr(LogCommits, "advance_start", hasty)


def torn_key_sidecar_believed(patch: Patch) -> None:
    patch.setattr(key_sidecar, "is_sealed", lambda _: True)


def key_sidecar_kept_where_its_segment_may_grow_again(patch: Patch) -> None:
    patch.setattr(
        SegmentSweep,
        "_is_listed",
        lambda self, file: (file.base_offset, file.version) in self._listed,
    )


def key_sidecar_of_another_size_believed(patch: Patch) -> None:
    """As a crash leaves it in the middle of a truncation, which would remove it."""
    open_sidecar = KeySidecar.open

    def careless(fs: FileSystem, path: str, row: SegmentRow, hash_key: bytes) -> KeySidecar:
        size = int.from_bytes(fs.read_bytes(path)[-72:-64])
        return open_sidecar(fs, path, replace(row, size=size), hash_key)

    patch.setattr(KeySidecar, "open", careless)


def aborted_transactions_written_after_the_producers(patch: Patch) -> None:
    """As if the order of the two did not matter: recovery looks only for what comes after a snapshot."""
    write = LogStates._write_aborted
    patch.setattr(LogStates, "_write_aborted", lambda _: None)
    commit = LogCommits.commit

    def late(self: LogCommits, *args: Any, **names: Any) -> None:
        commit(self, *args, **names)
        write(self._states)

    patch.setattr(LogCommits, "commit", late)


def aborted_transactions_of_lost_markers_kept(patch: Patch) -> None:
    patch.setattr(AbortedTransactions, "truncate_from_end", lambda *_: False)


def transactions_that_began_before_the_snapshot_not_aborted(patch: Patch) -> None:
    patch.setattr(
        ProducerReplay,
        "_with_first_offsets",
        lambda _, aborted: [row[:3] for row in aborted if row[1] >= 0],
    )


def aborts_reach_back_to_the_snapshot_only(patch: Patch) -> None:
    begin = ProducerReplay._with_first_offsets

    def careless(self: ProducerReplay, aborted: Sequence[Aborted]) -> list[Row]:
        known: list[Row] = [row[:3] for row in aborted if row[1] >= 0]
        rows = [*known, *begin(self, [row for row in aborted if row[1] < 0])]
        return sorted(rows, key=lambda row: row[2])

    patch.setattr(ProducerReplay, "_with_first_offsets", careless)


def open_transactions_forgotten_over_a_start(patch: Patch) -> None:
    patch.setattr(log_states, "_open_in", lambda _: OpenTransactions())


BUGS: dict[Callable[[Patch], None], int] = {
    directories_are_never_synced: 58,
    swap_without_generation: 22,
    acknowledge_before_fsync: 59,
    offset_index_trusted_over_log: 59,
    time_index_trusted_over_log: 43,
    rolled_segment_removed_as_an_orphan: 59,
    commit_lists_what_is_not_synced: 58,
    recovery_point_ahead_of_the_sync: 17,
    log_start_shown_before_its_commit: 20,
    deleted_segments_removed_before_the_commit: 20,
    manifest_written_in_place: 58,
    renames_of_a_swap_never_finished: 28,
    truncation_without_intent: 58,
    epochs_not_truncated: 59,
    producers_ahead_of_the_log: 58,
    log_start_past_what_is_synced: 39,
    segments_removed_before_the_log_start_is_committed: 20,
    torn_key_sidecar_believed: 18,
    key_sidecar_kept_where_its_segment_may_grow_again: 16,
    key_sidecar_of_another_size_believed: 58,
    aborted_transactions_written_after_the_producers: 41,
    aborted_transactions_of_lost_markers_kept: 38,
    transactions_that_began_before_the_snapshot_not_aborted: 19,
    aborts_reach_back_to_the_snapshot_only: 59,
    open_transactions_forgotten_over_a_start: 58,
}
"""And the history in which each shows soon."""


@pytest.mark.parametrize("inject", BUGS)
def test_sweep_catches(inject: Callable[[Patch], None], monkeypatch: Patch) -> None:
    inject(monkeypatch)
    assert caught(first_seed=BUGS[inject])
