"""Where segments are spared, no history loses a value, leaves one too long, or brings one back."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from cleaner.passes import rewrite
from cleaner.passes.rewrite import Rewriting
from cleaner.rules import pick
from cleaner.rules.pick import Assessment
from cleaner.rules.spared import may_stay
from storage.formats.config_property import LONG_MAX
from tests.harness.sidecar_mode import SidecarMode
from tests.harness.spared_history import SparedHistory

pytestmark = pytest.mark.usefixtures("sweeps_at_once")

SEEDS = 400 if "KOMPAKT_SOAK" in os.environ else 10
STEPS = 60


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_history_leaves_only_what_it_may(seed: int) -> None:
    SparedHistory(seed).play(STEPS)


@pytest.mark.parametrize("seed", range(SEEDS // 5))
@pytest.mark.parametrize("sidecars", [SidecarMode.OFF, SidecarMode.LYING])
def test_sidecars_may_be_missing_or_lie_and_the_keys_come_in_parts(
    seed: int, sidecars: SidecarMode
) -> None:
    SparedHistory(seed, map_slots=16, sidecars=sidecars).play(STEPS)


@pytest.mark.parametrize("seed", range(SEEDS // 10))
def test_a_crash_at_any_operation_of_a_pass_loses_and_revives_nothing(seed: int) -> None:
    history = SparedHistory(seed)
    history.play(STEPS // 2)
    while history.open:
        history.end_transaction()
    history.change_settings()
    history.change_ratio()
    for _ in range(4):
        history.append()
        history.roll()

    assert history.crash_everywhere() > 10


def test_the_histories_spare_something() -> None:
    found = 0
    for seed in range(10):
        history = SparedHistory(seed)
        history.play(STEPS)
        found = max(found, history.most_spared)
    assert found > 0


def _leave_what_is_deleted(patch: pytest.MonkeyPatch) -> None:
    """Records before a tombstone count like others."""
    patch.setattr(
        rewrite, "may_stay", lambda dead, least: may_stay(replace(dead, deleted=0), least)
    )


def _forget_what_is_left(patch: pytest.MonkeyPatch) -> None:
    """The log does not know that keys may have older values."""

    def has_history(its: Rewriting, *, is_last: bool) -> bool:
        return its._plan.view.config.history.keeps_more

    patch.setattr(Rewriting, "has_history_after", has_history)


def _know_no_deadline(patch: pytest.MonkeyPatch) -> None:
    """What is left has no deadline."""
    patch.setattr(pick, "spared_due_ms", lambda *_: LONG_MAX)


def _judge_only_dirty_keys(patch: pytest.MonkeyPatch) -> None:
    """No pass judges what earlier ones have left."""

    def assess(*sources: Any, **named: Any) -> Assessment:
        return replace(pick.assess(*sources, **named), sweeps=False)

    patch.setattr("tests.harness.compacted_log.assess", assess)


@pytest.mark.parametrize(
    "plant",
    [_leave_what_is_deleted, _forget_what_is_left, _know_no_deadline, _judge_only_dirty_keys],
)
def test_the_histories_find_a_planted_bug(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)

    with pytest.raises(AssertionError):
        _play_all(range(60))


def _play_all(seeds: Iterable[int]) -> None:
    for seed in seeds:
        SparedHistory(seed).play(STEPS)
