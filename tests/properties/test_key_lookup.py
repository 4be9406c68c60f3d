"""In every history a lookup finds the record that a reader of the log finds as a key's last one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from cleaner.lookup import last_records
from tests.harness.key_lookup import LookedUp, read_last
from tests.harness.key_table_faults import (
    count_aborted,
    forget_the_disk,
    keep_tables,
    prefer_the_disk,
)
from tests.harness.read_history import ReadHistory
from tests.harness.versioned_history import KEYS

pytestmark = pytest.mark.usefixtures("sweeps_at_once", "directories_without_ids")

SEEDS = 400 if "KOMPAKT_SOAK" in os.environ else 12
STEPS = 60


class LookedUpHistory(ReadHistory):
    """A history in which keys are looked up; with an odd seed most of them are on the disk."""

    def __init__(self, seed: int) -> None:
        self.looked_up = LookedUp(spills=seed % 2 == 1)
        super().__init__(seed)

    def read(self) -> None:
        found = self.looked_up.find(self.log.log, *KEYS)
        with self.watched.spoiled.repaired(self.log):
            assert found == [read_last(self.log, key) for key in KEYS]


@pytest.fixture(autouse=True)
def hardly_a_key_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cleaner.lookup.key_table.LOAD_FACTOR", 0.1)


def play(seed: int) -> LookedUpHistory:
    history = LookedUpHistory(seed)
    history.play_to_the_end(STEPS)
    return history


def play_all(seeds: Iterable[int]) -> None:
    for seed in seeds:
        play(seed)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_lookup_finds_what_a_reader_finds(seed: int) -> None:
    play(seed)


def test_most_lookups_use_a_table_that_was_there() -> None:
    history = play(0)

    assert history.looked_up.made < history.reads / 2


def test_some_lookups_ask_the_disk() -> None:
    assert sum(play(seed).looked_up.spilled for seed in (1, 3, 5)) > 10


def do_not_make_outdated_tables_again(patch: pytest.MonkeyPatch) -> None:
    """What a dropped tombstone has outranked stays hidden."""

    def hidden(*arguments: Any, **named: Any) -> Any:
        try:
            return found(*arguments, **named)
        except last_records.OutdatedTable:
            return None

    found = last_records._last_record
    patch.setattr(last_records, "_last_record", hidden)


@pytest.mark.parametrize(
    ("plant", "first_seed"),
    [
        (count_aborted, 0),
        (keep_tables, 0),
        (do_not_make_outdated_tables_again, 230),
        (forget_the_disk, 0),
        (prefer_the_disk, 0),
    ],
)
def test_a_planted_fault_is_found(
    plant: Callable[[pytest.MonkeyPatch], None],
    first_seed: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        play_all(range(first_seed, first_seed + 10))
