"""The table of a consumer group's member: complete, and reached in all its rows."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest

from server.coordination.groups.consumer.member import ConsumerMember, MemberState
from server.coordination.groups.consumer.member_state_table import MEMBER_STATES, Event
from server.coordination.groups.consumer.reconciliation import Target, reconciled
from server.coordination.groups.events import Assignment
from tests.harness.state_tables import (
    Reached,
    acting_events,
    check_actions_are_read,
    open_combinations,
    recording,
)

A, B = uuid.UUID(int=1), uuid.UUID(int=2)
ZERO, ONE, BOTH = frozenset({0}), frozenset({1}), frozenset({0, 1})
ASSIGNMENTS: tuple[Assignment, ...] = ({}, {A: ZERO}, {A: BOTH}, {A: ONE, B: ZERO}, {B: BOTH})
STEPS_MAX = 3


def test_every_combination_of_state_event_and_guard_has_exactly_one_row() -> None:
    assert open_combinations(MEMBER_STATES) == []


def test_heartbeats_reach_every_row_and_nothing_impossible() -> None:
    with recording(MEMBER_STATES) as reached:
        explore(reached)
    assert reached.missed() == []


@pytest.mark.parametrize("event", acting_events(MEMBER_STATES))
def test_the_action_of_each_event_is_carried_out(event: Event) -> None:
    check_actions_are_read(MEMBER_STATES, event, explore)


def explore(reached: Reached) -> None:
    """Send everything that a member can say, to each member that a few heartbeats lead to."""
    new = ConsumerMember(member_id="m")
    later = replace(new, state=MemberState.UNKNOWN, assigned={A: {0: 1}})
    members = [new, later]
    seen = {repr(each) for each in members}
    for _ in range(STEPS_MAX):
        followers = []
        for member, target, owned, has_resubscribed in product(
            members, targets(), (None, *ASSIGNMENTS), (False, True)
        ):
            reached.steps.clear()
            after = reconciled(
                member,
                replace(target, epoch=member.epoch + target.epoch),
                owned,
                has_resubscribed=has_resubscribed,
            )
            reached.check_chain(after.state)
            if repr(after) not in seen:
                seen.add(repr(after))
                followers.append(after)
        members = followers


def targets() -> Iterator[Target]:
    """Yields targets at the member's epoch and at the next one."""
    for epoch, assignment, subscribed in product((0, 1), ASSIGNMENTS, ({A}, {A, B})):
        for owner in (None, "other"):
            yield Target(
                epoch=epoch,
                assignment=assignment,
                subscribed=subscribed,
                owner=lambda _, number, owner=owner: owner if number else None,  # type: ignore[misc]
            )
