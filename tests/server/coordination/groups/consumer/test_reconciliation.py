"""One step of a member towards its target: give up first, then get what is free."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

import pytest

from server.coordination.groups.consumer.member import ConsumerMember, Holding, MemberState
from server.coordination.groups.consumer.reconciliation import Target, reconciled

TOPIC, OTHER = uuid.UUID(int=1), uuid.UUID(int=2)


def member(
    state: MemberState, assigned: set[int], revoking: set[int] | None = None
) -> ConsumerMember:
    return ConsumerMember(
        member_id="m",
        epoch=1,
        previous_epoch=1,
        state=state,
        assigned=holding(assigned),
        revoking=holding(revoking or set()),
    )


def holding(numbers: set[int], epoch: int = 1) -> Holding:
    return {TOPIC: dict.fromkeys(numbers, epoch)} if numbers else {}


def target(numbers: set[int], owners: Mapping[int, str] | None = None, epoch: int = 2) -> Target:
    return Target(
        epoch=epoch,
        assignment={TOPIC: frozenset(numbers)} if numbers else {},
        subscribed={TOPIC},
        owner=lambda _, number: (owners or {}).get(number),
    )


def step(before: ConsumerMember, goal: Target, owned: set[int] | None) -> ConsumerMember:
    says = None if owned is None else {TOPIC: frozenset(owned)}
    return reconciled(before, goal, says, has_resubscribed=False)


@pytest.mark.parametrize("owned", [None, {0, 1}])
def test_it_stays_at_its_epoch_as_long_as_it_has_something_to_give_up(
    owned: set[int] | None,
) -> None:
    after = step(member(MemberState.STABLE, {0, 1}), target({0, 2}), owned)

    assert (after.epoch, after.state) == (1, MemberState.UNREVOKED_PARTITIONS)
    assert (after.assigned, after.revoking) == (holding({0}), holding({1}))
    assert step(after, target({0, 2}), owned) is after


def test_once_it_has_given_up_it_gets_what_is_free_and_is_at_the_epoch() -> None:
    before = member(MemberState.UNREVOKED_PARTITIONS, {0}, {1})

    after = step(before, target({0, 2, 3}, {3: "other"}), {0})

    assert (after.epoch, after.previous_epoch) == (2, 1)
    assert after.state is MemberState.UNRELEASED_PARTITIONS
    assert (after.assigned, after.revoking) == ({TOPIC: {0: 1, 2: 2}}, {})


def test_it_gets_the_rest_when_the_others_have_given_it_up() -> None:
    before = member(MemberState.UNRELEASED_PARTITIONS, {0})

    after = step(before, target({0, 1}, {1: "m"}, epoch=1), None)

    assert after.state is MemberState.STABLE
    assert after.assigned == holding({0, 1})


def test_it_may_be_given_what_it_was_to_give_up() -> None:
    before = member(MemberState.UNREVOKED_PARTITIONS, {0}, {1})

    after = step(before, target({0, 1}, {0: "m", 1: "m"}), {0})

    assert after.assigned == {TOPIC: {0: 1, 1: 2}}


def test_topics_that_it_does_not_want_any_more_are_taken_away_at_once() -> None:
    before = member(MemberState.STABLE, {0})
    goal = Target(epoch=1, assignment={}, subscribed={OTHER}, owner=lambda _, __: None)

    waits = reconciled(before, goal, None, has_resubscribed=True)
    assert (waits.assigned, waits.revoking) == ({}, holding({0}))
    assert (waits.epoch, waits.state) == (1, MemberState.UNREVOKED_PARTITIONS)
    gone = reconciled(before, goal, {}, has_resubscribed=True)
    assert (gone.assigned, gone.revoking) == ({}, {})
    assert (gone.epoch, gone.state) == (1, MemberState.STABLE)


@pytest.mark.parametrize("state", [MemberState.STABLE, MemberState.UNREVOKED_PARTITIONS])
def test_with_other_topics_it_keeps_those_that_it_still_subscribes_to(state: MemberState) -> None:
    revoking = {1} if state is MemberState.UNREVOKED_PARTITIONS else None
    before = member(state, {0}, revoking)
    goal = target({0}, epoch=1)
    assert reconciled(before, goal, None, has_resubscribed=True) is before


@pytest.mark.parametrize("state", [MemberState.STABLE, MemberState.UNREVOKED_PARTITIONS])
def test_a_deleted_topic_is_taken_away_with_the_next_target_and_not_earlier(
    state: MemberState,
) -> None:
    revoking = {1} if state is MemberState.UNREVOKED_PARTITIONS else None
    before = member(state, {0}, revoking)
    goal = Target(epoch=1, assignment={}, subscribed=set(), owner=lambda _, __: None)
    assert reconciled(before, goal, None, has_resubscribed=False) is before


def test_at_its_target_it_stays_as_it_is() -> None:
    before = member(MemberState.STABLE, {0})
    assert step(before, target({0}, epoch=1), None) is before
