"""However far a mirror lags, and whenever both sides clean: it never shows a deleted key again."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.harness.lagging_mirrors import Diverged, Fault, LaggingMirrors
from tests.properties.kernel_passes import bounded

STEPS = 80
SEEDS_MAX = 100


@bounded
@given(st.integers(0, 2**32))
def test_a_mirror_that_has_caught_up_shows_what_was_produced(seed: int) -> None:
    scene = LaggingMirrors(Random(seed))

    scene.run(STEPS)

    assert scene.checks or not scene.slots


@pytest.mark.parametrize("fault", [Fault.NO_HOLD, Fault.PLANNED_PASSES_WIN])
def test_without_the_rule_some_mirror_diverges(fault: Fault) -> None:
    assert any(diverges(seed, fault) for seed in range(SEEDS_MAX))


def diverges(seed: int, fault: Fault) -> bool:
    try:
        LaggingMirrors(Random(seed), fault).run(STEPS)
    except Diverged:
        return True
    return False
