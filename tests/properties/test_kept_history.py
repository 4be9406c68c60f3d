"""Where older values stay, no history loses one, keeps one too long, or brings one back."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from cleaner.kernel.kernel import OffsetMap
from cleaner.passes.dirty_section import DirtySection, dirty_section
from cleaner.passes.key_parts import KeyParts, Part
from cleaner.passes.verify_pass import VerificationFailed
from cleaner.rules import cleaning_plan, pick
from cleaner.rules.history import Level, levels_of
from storage.formats.compaction_history import LAST_VALUE, CompactionHistory
from storage.formats.config_property import LONG_MAX
from tests.harness.kept_history import KeptHistory
from tests.harness.sidecar_mode import SidecarMode

pytestmark = pytest.mark.usefixtures("sweeps_at_once")

SEEDS = 400 if "KOMPAKT_SOAK" in os.environ else 25
STEPS = 60


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_history_keeps_what_its_rule_says(seed: int) -> None:
    KeptHistory(seed).play(STEPS)


@pytest.mark.parametrize("seed", range(SEEDS // 5))
def test_the_keys_may_come_in_parts(seed: int) -> None:
    KeptHistory(seed, map_slots=16).play(STEPS)


@pytest.mark.parametrize("sidecars", [SidecarMode.OFF, SidecarMode.DAMAGED, SidecarMode.LYING])
@pytest.mark.parametrize("seed", range(SEEDS // 5))
def test_sidecars_may_be_missing_or_damaged_or_lie(seed: int, sidecars: SidecarMode) -> None:
    KeptHistory(seed, sidecars=sidecars).play(STEPS)


@pytest.mark.parametrize("seed", range(SEEDS // 12))
def test_a_crash_at_any_operation_of_a_pass_loses_and_revives_nothing(seed: int) -> None:
    history = KeptHistory(seed)
    history.play(STEPS)
    while history.open:
        history.end_transaction()
    history.change_settings()
    for _ in range(4):
        history.append()
        history.roll()

    assert history.crash_everywhere() > 10


def _count_only_dirty_records(patch: pytest.MonkeyPatch) -> None:
    """Records of the clean section are not counted."""
    patch.setattr(KeyParts, "_look_below", lambda _parts, _from_offset: True)


def _keep_one_of_each_old_period(patch: pytest.MonkeyPatch) -> None:
    """What is older than the last step is no longer thinned."""

    def levels(history: Any) -> tuple[Level, ...]:
        return tuple(each._replace(is_rest=False) for each in levels_of(history))

    patch.setattr("cleaner.passes.memory.levels_of", levels)


def _sweep_never(patch: pytest.MonkeyPatch) -> None:
    """Values whose age or settings have changed stay until there is a new record of their key."""
    patch.setattr(pick, "_history_due_ms", lambda *_: LONG_MAX)


def _forget_that_there_is_a_history(patch: pytest.MonkeyPatch) -> None:
    """After a change of the settings, older values are never judged again."""
    patch.setattr(cleaning_plan.CleaningPlan, "leaves_history", property(lambda _: False))


def _keep_cells_of_other_parts(patch: pytest.MonkeyPatch) -> None:
    """The map of cells is not cleared with the map of keys."""

    def clear(parts: Any, part: Part) -> None:
        OffsetMap.clear(parts._map, part=part.number, parts=part.count)

    patch.setattr(KeyParts, "_clear", clear)


def _judge_by_the_wrong_clock(patch: pytest.MonkeyPatch) -> None:
    """Values are thinned as if it were an hour later."""

    def late(*sources: Any, now_ms: int, **named: Any) -> DirtySection:
        return dirty_section(*sources, now_ms=now_ms + 3_600_000, **named)

    patch.setattr("cleaner.passes.clean.dirty_section", late)


def _ignore_settings(patch: pytest.MonkeyPatch) -> None:
    """Passes keep the last value only."""

    def without(*sources: Any, history: CompactionHistory, **named: Any) -> DirtySection:
        return dirty_section(*sources, history=LAST_VALUE, **named)

    patch.setattr("cleaner.passes.clean.dirty_section", without)


def _play_all(seeds: Iterable[int]) -> None:
    for seed in seeds:
        KeptHistory(seed, map_slots=16 if seed % 2 else 1000).play(STEPS)


@pytest.mark.parametrize(
    ("plant", "found"),
    [
        (_count_only_dirty_records, (AssertionError, VerificationFailed)),
        (_keep_one_of_each_old_period, AssertionError),
        (_sweep_never, AssertionError),
        (_forget_that_there_is_a_history, AssertionError),
        (_keep_cells_of_other_parts, (AssertionError, VerificationFailed)),
        (_judge_by_the_wrong_clock, AssertionError),
        (_ignore_settings, AssertionError),
    ],
)
def test_the_histories_find_a_planted_bug(
    plant: Callable[[pytest.MonkeyPatch], None],
    found: type[Exception] | tuple[type[Exception], ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch)

    with pytest.raises(found):
        _play_all(range(200))
