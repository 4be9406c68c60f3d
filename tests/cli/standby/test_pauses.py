"""Pauses grow up to a bound, are spread, and begin short again after an answer."""

from __future__ import annotations

from cli.standby.pauses import FIRST_SECONDS, SECONDS_MAX, SPREAD, Pauses


def test_they_grow_to_the_bound_and_begin_again() -> None:
    pauses = Pauses(lambda: 0.0)
    waited = [pauses.next() for _ in range(12)]
    assert waited[:3] == [FIRST_SECONDS, 2 * FIRST_SECONDS, 4 * FIRST_SECONDS]
    assert waited[-1] == SECONDS_MAX
    pauses.reset()
    assert pauses.next() == FIRST_SECONDS


def test_they_are_shortened_by_chance() -> None:
    assert Pauses(lambda: 1.0).next() == FIRST_SECONDS * (1 - SPREAD)


def test_a_leader_may_ask_for_a_longer_one_but_not_for_ever() -> None:
    assert Pauses().next(5.0) == 5.0
    assert Pauses().next(1e9) == SECONDS_MAX
