from __future__ import annotations

import pytest

from cli.standby.pauses import FIRST_SECONDS, SECONDS_MAX, Pauses


def test_pauses_grow_up_to_a_bound_and_begin_again_after_an_answer() -> None:
    pauses = Pauses(lambda: 0.0)
    waits = [pauses.next() for _ in range(12)]
    assert waits[:3] == [FIRST_SECONDS, 2 * FIRST_SECONDS, 4 * FIRST_SECONDS]
    assert waits[-1] == SECONDS_MAX
    pauses.reset()
    assert pauses.next() == FIRST_SECONDS


def test_a_pause_is_shortened_by_half_at_most() -> None:
    assert Pauses(lambda: 1.0).next() == pytest.approx(FIRST_SECONDS / 2)


def test_a_pause_is_as_long_as_the_leader_asks_within_the_bound() -> None:
    pauses = Pauses(lambda: 0.5)
    assert pauses.next(5.0) == 5.0
    assert pauses.next(1e9) == SECONDS_MAX
