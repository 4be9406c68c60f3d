"""In no history with every feature is a value lost, or back that was deleted, expired or erased."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from cleaner.passes.dirty_section import DirtySection, dirty_section
from cleaner.passes.verify_pass import VerificationFailed
from cleaner.rules import cleaning_plan
from cleaner.rules.hold import NO_HOLD
from protocol.wire.numbers import OFFSET_MAX
from storage.formats.compaction_strategy import BY_OFFSET
from storage.state.log_states import LogStates
from tests.harness.every_feature import EveryFeature

pytestmark = pytest.mark.usefixtures("sweeps_at_once", "directories_without_ids")

SEEDS = 400 if "KOMPAKT_SOAK" in os.environ else 8
STEPS = 60


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_history_with_every_feature_leaves_what_the_rules_say(seed: int) -> None:
    play(seed)


def play_all(seeds: Iterable[int]) -> None:
    for seed in seeds:
        play(seed)


def play(seed: int) -> None:
    history = EveryFeature(seed, map_slots=16 if seed % 4 == 3 else 1000)
    history.play(STEPS)
    history.finish()


def _ignore_holds(patch: pytest.MonkeyPatch) -> None:
    """Passes drop tombstones that a group holds."""
    plan = cleaning_plan.plan_pass
    patch.setattr(
        "tests.harness.compacted_log.plan_pass",
        lambda *sources, **named: replace(plan(*sources, **named), hold=NO_HOLD),
    )


def _ignore_versions(patch: pytest.MonkeyPatch) -> None:
    """The last record of a key wins; versions do not count."""

    def by_offset(*sources: Any, strategy: Any, **named: Any) -> DirtySection:
        return dirty_section(*sources, strategy=BY_OFFSET, **named)

    patch.setattr("cleaner.passes.clean.dirty_section", by_offset)


def _drop_tombstones_early(patch: pytest.MonkeyPatch) -> None:
    """Tombstones go as if it were half a second later."""
    plan = cleaning_plan.plan_pass

    def early(*sources: Any, now_ms: int, **named: Any) -> cleaning_plan.CleaningPlan:
        return plan(*sources, now_ms=now_ms + 500, **named)

    patch.setattr("tests.harness.compacted_log.plan_pass", early)


def _let_fences_hold_nothing(patch: pytest.MonkeyPatch) -> None:
    """Tombstones above a damaged segment go."""
    patch.setattr(cleaning_plan, "hold_of", lambda hold, _fences, **_: hold)


def _move_over_fences(patch: pytest.MonkeyPatch) -> None:
    """The clean offset moves beyond a damaged segment."""
    patch.setattr("cleaner.passes.dirty_section.clean_offset_max", lambda *_: OFFSET_MAX)


def _undo_without_aborted_transactions(patch: pytest.MonkeyPatch) -> None:
    """An undo brings aborted records back, but not the list of their transactions."""
    restore = LogStates.restore_aborted
    patch.setattr(LogStates, "restore_aborted", lambda its, _rows: restore(its, []))


def _undo_out_of_order(patch: pytest.MonkeyPatch) -> None:
    """Passes below one that has kept nothing are still kept."""
    patch.setattr("storage.undo.kept_passes.KeptPasses.end_all", lambda *_: None)


def _certify_beside_kept_passes(patch: pytest.MonkeyPatch) -> None:
    """A key counts as erased while segments that are kept for an undo have it."""
    patch.setattr("tests.harness.erased_log.left_of", lambda *_, **__: [])


def _move_nothing(patch: pytest.MonkeyPatch) -> None:
    """Records without a key are dropped where they should be moved."""
    patch.setattr("tests.harness.unkeyed_log.AsideLog.move", lambda *_: None)


@pytest.mark.parametrize(
    ("plant", "first_seed"),
    [
        (_ignore_holds, 1),
        (_ignore_versions, 1),
        (_drop_tombstones_early, 46),
        (_let_fences_hold_nothing, 8),
        (_move_over_fences, 2),
        (_undo_without_aborted_transactions, 10),
        (_undo_out_of_order, 0),
        (_certify_beside_kept_passes, 0),
        (_move_nothing, 0),
    ],
)
def test_the_histories_find_a_planted_bug(
    plant: Callable[[pytest.MonkeyPatch], None], first_seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`first_seed` only saves time: the first one whose history finds the bug now."""
    plant(monkeypatch)

    with pytest.raises((AssertionError, VerificationFailed)):
        play_all(range(first_seed, first_seed + 200))
