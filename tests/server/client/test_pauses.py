"""Pauses grow up to a bound, are spread, and begin short again after an answer."""

from __future__ import annotations

import pytest

from server.client.pauses import MIRROR, STANDBY, Pacing, Pauses

EVERY = pytest.mark.parametrize("pacing", [STANDBY, MIRROR], ids=["standby", "mirror"])


@EVERY
def test_they_grow_to_the_bound_and_begin_again(pacing: Pacing) -> None:
    pauses = Pauses(pacing, lambda: 1.0)
    waited = [pauses.next() for _ in range(12)]
    assert waited[:3] == [pacing.most_share * n * pacing.first_s for n in (1, 2, 4)]
    assert waited[-1] == pacing.most_share * pacing.max_s
    pauses.reset()
    assert pauses.next() == waited[0]


@EVERY
def test_they_are_spread_by_chance(pacing: Pacing) -> None:
    assert Pauses(pacing, lambda: 0.0).next() == pacing.least_share * pacing.first_s
    assert Pauses(pacing, lambda: 1.0).next() == pacing.most_share * pacing.first_s


def test_a_leader_may_ask_for_a_longer_one_but_not_for_ever() -> None:
    assert Pauses(STANDBY).next(5.0) == 5.0
    assert Pauses(STANDBY).next(1e9) == STANDBY.max_s
