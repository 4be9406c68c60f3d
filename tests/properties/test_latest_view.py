"""In every history a view has the last record of each key, and a reader that follows it holds them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import pytest

from cleaner.lookup import key_table, latest_batches
from cleaner.rules import cleaning_plan
from protocol.wire.numbers import Offset
from storage.files.errors import CorruptLog
from storage.formats.compaction_strategy import BY_OFFSET
from tests.harness.every_feature import EveryFeature
from tests.harness.key_lookup import read_last_of_all
from tests.harness.latest_view import Follower, ViewReader, values_of

SEEDS = 400 if "KOMPAKT_SOAK" in os.environ else 12
STEPS = 60
READ_BYTES_MAX = 300
"""So that a reader needs several reads, between which the history continues."""


class ViewedHistory(EveryFeature):
    """A history with every feature, in which a view is read after about half of the steps."""

    def __init__(self, seed: int) -> None:
        self.reader = ViewReader()
        self.follower = Follower()
        self.reads = 0
        super().__init__(seed)

    def check(self) -> None:
        super().check()
        if self.random.random() < 0.5:
            damage = (CorruptLog,) if self.watched.spoiled else ()
            with self.ends_at_damage(), suppress(*damage):
                start = self.log.log.log_start_offset
                found = self.reader.records(self.log.log, start, bytes_max=READ_BYTES_MAX)
                is_at_end = self.follower.read_on(self.log, bytes_max=READ_BYTES_MAX)
                with self.watched.spoiled.repaired(self.log):
                    last = read_last_of_all(self.log)
                assert found == sorted(last.values(), key=lambda each: each.offset)
                if is_at_end:
                    assert self.follower.values() == values_of(last)
                self.reads += 1


@pytest.fixture(autouse=True)
def sweeps_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes for older values need no pause, so that the model knows what is left."""
    monkeypatch.setattr(cleaning_plan, "SWEEP_PAUSE_MS_MIN", 0)


@pytest.fixture(autouse=True)
def directories_without_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """The harness's logs are in directories without their topic's id."""
    monkeypatch.setattr(
        "storage.ledger.ledger_settling.topic_directory", lambda topic, topic_id: topic
    )


@pytest.fixture(autouse=True)
def one_offset_to_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that short logs have something that is sent as it is stored."""
    monkeypatch.setattr(key_table, "BLOCK_SHIFT_MIN", 0)


def play(seed: int) -> ViewedHistory:
    history = ViewedHistory(seed)
    history.play(STEPS)
    history.finish()
    return history


def play_all(seeds: Iterable[int]) -> None:
    for seed in seeds:
        play(seed)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_view_has_the_last_record_of_each_key_in_the_order_of_their_offsets(seed: int) -> None:
    assert play(seed).reads


def test_some_records_could_be_sent_as_they_are_stored() -> None:
    assert sum(play(seed).reader.stored_records for seed in (1, 2, 3)) > 100


def test_many_reads_of_followers_go_on_where_the_one_before_stopped() -> None:
    histories = [play(seed) for seed in (1, 2, 3)]

    reads = sum(each.reads for each in histories)
    assert sum(each.follower.resumed for each in histories) > reads / 3


def _count_aborted(patch: pytest.MonkeyPatch) -> None:
    """Records of aborted transactions get into the table."""
    patch.setattr(key_table.KeyTable, "_outcomes", lambda *_: None)


def _keep_tables(patch: pytest.MonkeyPatch) -> None:
    """A table holds after truncations, undos and changes of strategy."""

    def never(_view: key_table.TableView) -> key_table.TableBasis:
        return key_table.TableBasis(BY_OFFSET, 0, Offset(0))

    patch.setattr(key_table.TableView, "basis", property(never))


def _forget_what_is_outranked(patch: pytest.MonkeyPatch) -> None:
    """Everything below the table's end counts as a last record."""
    patch.setattr(key_table.KeyTable, "live_until", lambda table, _offset: table.end_offset)


def _skip_the_rest_of_a_segment(patch: pytest.MonkeyPatch) -> None:
    """A read that has enough says that it has read the segment to its end."""

    def read(part: Any, segment: Any) -> None:
        original(part, segment)
        part.at = max(part.at, min(segment.end_offset, part._end_offset))

    original = latest_batches._Part._read_segment
    patch.setattr(latest_batches._Part, "_read_segment", read)


@pytest.mark.parametrize(
    "plant",
    [_count_aborted, _keep_tables, _forget_what_is_outranked, _skip_the_rest_of_a_segment],
)
def test_a_planted_fault_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        play_all(range(10))
