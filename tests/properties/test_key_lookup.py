"""In every history a lookup finds the record that a reader of the log finds as a key's last one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import pytest

from cleaner.lookup import key_table, last_records
from cleaner.rules import cleaning_plan
from storage.files.errors import CorruptLog
from storage.formats.compaction_strategy import BY_OFFSET
from tests.harness.every_feature import EveryFeature
from tests.harness.key_lookup import LookedUp, read_last
from tests.harness.versioned_history import KEYS

SEEDS = 400 if "KOMPAKT_SOAK" in os.environ else 12
STEPS = 60


class LookedUpHistory(EveryFeature):
    """A history with every feature, in which keys are looked up after about half of the steps, so that a
    table has to catch up with several of them."""

    def __init__(self, seed: int) -> None:
        self.looked_up = LookedUp()
        self.lookups = 0
        super().__init__(seed)

    def check(self) -> None:
        super().check()
        if self.random.random() < 0.5:
            damage = (CorruptLog,) if self.watched.spoiled else ()
            with self.ends_at_damage(), suppress(*damage):
                found = self.looked_up.find(self.log.log, *KEYS)
                with self.watched.spoiled.repaired(self.log):
                    assert found == [read_last(self.log, key) for key in KEYS]
                self.lookups += 1


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


def play(seed: int) -> LookedUpHistory:
    history = LookedUpHistory(seed)
    history.play(STEPS)
    history.finish()
    return history


def play_all(seeds: Iterable[int]) -> None:
    for seed in seeds:
        play(seed)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_lookup_finds_what_a_reader_finds(seed: int) -> None:
    play(seed)


def test_most_lookups_use_a_table_that_was_there() -> None:
    history = play(0)

    assert history.looked_up.made < history.lookups / 2


def _count_aborted(patch: pytest.MonkeyPatch) -> None:
    """Records of aborted transactions get into the table."""
    patch.setattr(key_table.KeyTable, "_outcomes", lambda *_: None)


def _keep_tables(patch: pytest.MonkeyPatch) -> None:
    """A table holds after truncations, undos and changes of strategy."""

    def never(_view: key_table.TableView) -> key_table.TableBasis:
        from protocol.wire.numbers import Offset

        return key_table.TableBasis(BY_OFFSET, 0, Offset(0))

    patch.setattr(key_table.TableView, "basis", property(never))


def _do_not_make_outdated_tables_again(patch: pytest.MonkeyPatch) -> None:
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
    [(_count_aborted, 0), (_keep_tables, 0), (_do_not_make_outdated_tables_again, 230)],
)
def test_a_planted_fault_is_found(
    plant: Callable[[pytest.MonkeyPatch], None],
    first_seed: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        play_all(range(first_seed, first_seed + 10))
