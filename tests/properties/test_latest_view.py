"""In every history a view has the last record of each key, and a reader that follows it holds them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from cleaner.lookup import dead_notes, latest_batches
from tests.harness.key_lookup import read_last_of_all
from tests.harness.key_table_faults import (
    count_aborted,
    forget_the_disk,
    forget_undos,
    forget_what_is_outranked,
    forget_what_is_outranked_meanwhile,
    forget_what_passes_have_kept,
    keep_tables,
    note_nothing_on_the_disk,
    prefer_the_disk,
    renew_late,
)
from tests.harness.latest_view import Follower, ViewReader, values_of
from tests.harness.read_history import ReadHistory

pytestmark = pytest.mark.usefixtures("sweeps_at_once", "directories_without_ids")

SEEDS = 400 if "KOMPAKT_SOAK" in os.environ else 12
STEPS = 60
READ_BYTES_MAX = 300
"""So that a reader needs several reads, between which the history continues."""


class ViewedHistory(ReadHistory):
    """A history in which a view is read, and the notes of its table follow passes, in steps between
    which the history continues. With an odd seed most keys of the table are on the disk."""

    def __init__(self, seed: int, *, steps_max: int = 3) -> None:
        self.reader = ViewReader(spills=seed % 2 == 1)
        self.follower = Follower()
        self.steps_max = steps_max
        super().__init__(seed)

    def read(self) -> None:
        start = self.log.log.log_start_offset
        self.reader.looked_up.renew_notes(
            self.log.log, steps=min(self.random.randrange(4), self.steps_max)
        )
        found = self.reader.records(self.log.log, start, bytes_max=READ_BYTES_MAX)
        is_at_end = self.follower.read_on(self.log, bytes_max=READ_BYTES_MAX)
        with self.watched.spoiled.repaired(self.log):
            last = read_last_of_all(self.log)
        assert found == sorted(last.values(), key=lambda each: each.offset)
        if is_at_end:
            assert self.follower.values() == values_of(last)


@pytest.fixture(autouse=True)
def hardly_a_key_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cleaner.lookup.key_table.LOAD_FACTOR", 0.1)


@pytest.fixture(autouse=True)
def one_offset_to_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that short logs have something that is sent as it is stored."""
    monkeypatch.setattr(dead_notes, "BLOCK_SHIFT_MIN", 0)


def play(seed: int, *, steps_max: int = 3) -> ViewedHistory:
    history = ViewedHistory(seed, steps_max=steps_max)
    history.play_to_the_end(STEPS)
    return history


def play_all(seeds: Iterable[int]) -> None:
    for seed in seeds:
        play(seed)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_view_has_the_last_record_of_each_key_in_the_order_of_their_offsets(seed: int) -> None:
    assert play(seed).reads


def test_notes_that_follow_passes_let_more_records_be_sent_as_they_are_stored() -> None:
    kept, followed = (
        sum(play(seed, steps_max=steps_max).reader.stored_records for seed in range(0, 12, 2))
        for steps_max in (0, 3)
    )
    assert followed > 1.2 * kept > 100


def test_many_reads_of_followers_go_on_where_the_one_before_stopped() -> None:
    histories = [play(seed) for seed in (1, 2, 3)]

    reads = sum(each.reads for each in histories)
    assert sum(each.follower.resumed for each in histories) > reads / 3


def skip_the_rest_of_a_segment(patch: pytest.MonkeyPatch) -> None:
    """A read that has enough says that it has read the segment to its end."""

    def read(part: Any, segment: Any) -> None:
        original(part, segment)
        part.at = max(part.at, min(segment.end_offset, part._end_offset))

    original = latest_batches._Part._read_segment
    patch.setattr(latest_batches._Part, "_read_segment", read)


@pytest.mark.parametrize(
    "plant",
    [
        count_aborted, keep_tables, forget_undos, skip_the_rest_of_a_segment, forget_what_is_outranked,
        forget_what_passes_have_kept, forget_what_is_outranked_meanwhile, renew_late, forget_the_disk,
        prefer_the_disk, note_nothing_on_the_disk,
    ],
)  # fmt: skip
def test_a_planted_fault_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        play_all(range(60))
