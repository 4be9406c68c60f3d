"""The table of an erasure's states: complete, and certifying only what is proven."""

from __future__ import annotations

import pytest

from server.erasure.state_table import ERASURE_STATES, LOOKS, Action, ErasureState, Event, Guard
from tests.harness.state_tables import open_combinations

OPEN = [state for state in ErasureState if not state.is_final]
POSSIBLE = [
    (state, event, guard)
    for state, event, guard in ERASURE_STATES.combinations()
    if not state.is_final
]


def test_every_combination_of_state_event_and_guard_has_exactly_one_row() -> None:
    assert open_combinations(ERASURE_STATES) == []


@pytest.mark.parametrize(("state", "event", "guard"), POSSIBLE)
def test_each_step_of_an_open_erasure_leads_where_the_guard_says(
    state: ErasureState, event: Event, guard: Guard
) -> None:
    step = ERASURE_STATES.step(state, event, guard)

    was_certified = state is ErasureState.ERASED
    expected = {
        Guard.LEFT: ErasureState.CLEANING,
        Guard.KEPT: ErasureState.ERASED if was_certified else ErasureState.HELD,
        Guard.TOMBSTONE: ErasureState.ERASED,
        Guard.NOTHING: ErasureState.COMPLETE,
        Guard.ALWAYS: ErasureState.ENDED,
    }
    assert step.next_state is expected[guard]
    is_new = step.next_state in (ErasureState.ERASED, ErasureState.COMPLETE)
    assert (step.action is Action.CERTIFY) == (is_new and step.next_state is not state)
    assert (step.action is Action.WITHDRAW) == (was_certified and guard is Guard.LEFT)


@pytest.mark.parametrize("state", OPEN)
def test_records_or_files_that_are_left_are_never_certified(state: ErasureState) -> None:
    for guard in (Guard.LEFT, Guard.KEPT):
        assert ERASURE_STATES.step(state, Event.LOOK, guard).action is not Action.CERTIFY


@pytest.mark.parametrize("state", [ErasureState.COMPLETE, ErasureState.ENDED])
def test_a_final_state_takes_no_step(state: ErasureState) -> None:
    for guard in LOOKS:
        with pytest.raises(KeyError):
            ERASURE_STATES.step(state, Event.LOOK, guard)
