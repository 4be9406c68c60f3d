"""Where keys are compared, no history ends in a false alarm."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from cleaner.passes.compare_keys import KeyComparison
from storage.formats.log_config import LogConfig
from tests.harness.sidecar_mode import SidecarMode
from tests.harness.spared_history import SparedHistory

pytestmark = pytest.mark.usefixtures("sweeps_at_once")

SEEDS = 300 if "KOMPAKT_SOAK" in os.environ else 8
STEPS = 60


class ComparingHistory(SparedHistory):
    """A history with transactions, strategies, older values, holds and crashes that mostly compares."""

    def config(self) -> LogConfig:
        return replace(super().config(), compaction_compare_keys=self.random.random() < 0.8)


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("slots", [1000, 16])
def test_every_record_that_a_pass_removes_has_a_later_one_of_its_key(seed: int, slots: int) -> None:
    ComparingHistory(seed, map_slots=slots).play(STEPS)


@pytest.mark.parametrize("seed", range(SEEDS // 4))
@pytest.mark.parametrize("sidecars", [SidecarMode.OFF, SidecarMode.DAMAGED, SidecarMode.LYING])
def test_sidecars_may_be_missing_or_wrong(seed: int, sidecars: SidecarMode) -> None:
    ComparingHistory(seed, sidecars=sidecars).play(STEPS)


def test_the_histories_compare_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []
    compare = KeyComparison.compare

    def counted(its: KeyComparison, *parts: object) -> None:
        compare(its, *parts)  # type: ignore[arg-type]
        compared.append(its.keys)

    monkeypatch.setattr(KeyComparison, "compare", counted)

    for seed in range(3):
        ComparingHistory(seed).play(STEPS)

    assert sum(compared) > 30
