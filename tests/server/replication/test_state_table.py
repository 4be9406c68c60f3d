"""The table of a mirrored partition's states: complete, every state can be reached, and left."""

from __future__ import annotations

from server.replication.state_table import (
    ANSWERS,
    FINAL,
    MIRROR_STATES,
    Action,
    Event,
    Guard,
    MirrorState,
)
from tests.harness.state_tables import open_combinations


def test_every_combination_of_state_event_and_guard_has_exactly_one_row() -> None:
    assert open_combinations(MIRROR_STATES) == []


def test_every_state_is_reached_from_the_first_one() -> None:
    reached, left = set[MirrorState](), [MirrorState.CHECKING]
    while left:
        state = left.pop()
        reached.add(state)
        nexts = {
            row.next_state
            for row in MIRROR_STATES.rows
            if state in row.states and row.next_state is not None
        }
        left.extend(nexts - reached)

    assert reached == set(MirrorState)


def test_what_may_be_the_last_copy_waits_for_an_operator() -> None:
    for guard in FINAL:
        for state in (MirrorState.CHECKING, MirrorState.COPYING):
            step = MIRROR_STATES.step(state, Event.ANSWER, guard)
            assert (step.action, step.next_state) == (Action.REPORT, MirrorState.FAILED)


def test_what_a_new_copy_loses_only_it_has_lost() -> None:
    for guard in FINAL:
        step = MIRROR_STATES.step(MirrorState.RESYNC, Event.ANSWER, guard)
        assert step.next_state in (MirrorState.RESYNC, MirrorState.FAILED)
        is_ended = step.next_state is MirrorState.FAILED
        assert step.action in ((Action.DROP,) if is_ended else (Action.BEGIN, Action.SKIP))


def test_only_an_asking_partition_writes() -> None:
    for state in set(MirrorState) - {MirrorState.CHECKING, MirrorState.COPYING, MirrorState.RESYNC}:
        for guard in ANSWERS:
            step = MIRROR_STATES.step(state, Event.ANSWER, guard)
            assert (step.action, step.next_state) == (Action.NOTHING, state)


def test_a_failed_partition_goes_on_only_when_an_operator_says_so() -> None:
    leaving = {
        row.event
        for row in MIRROR_STATES.rows
        if MirrorState.FAILED in row.states and row.next_state not in (None, MirrorState.FAILED)
    }
    assert leaving == {Event.RESUME, Event.RESYNC, Event.STOP}


def test_a_stopped_partition_never_starts_again() -> None:
    for event in Event:
        for guard in MIRROR_STATES.guards[event]:
            assert MIRROR_STATES.step(MirrorState.STOPPED, event, guard).next_state is (
                MirrorState.STOPPED
            )
    assert Guard.ALWAYS in MIRROR_STATES.guards[Event.STOP]
