"""Moves a member from its current to its target assignment: it revokes first, then gets new partitions.

                       it has to revoke partitions
    STABLE ------------------------------------> UNREVOKED_PARTITIONS
      |  ^ \\                                       | it confirms the revocation
      |  |  +----------- nothing to wait for -------+
      |  |                                          |
      v  | others have released them                | others still have partitions of its target
    UNRELEASED_PARTITIONS <-------------------------+

While it has partitions to revoke, it stays at its epoch. Then it goes to the target's epoch, and gets
the free partitions of its target. So no partition ever belongs to two members.
`member_state_table.py` has all steps. Pure.

Source: Apache Kafka, CurrentAssignmentBuilder.java; KIP-848.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from server.coordination.groups.consumer.member import (
    ConsumerMember,
    Holding,
    MemberState,
    overlaps,
)
from server.coordination.groups.consumer.member_state_table import (
    MEMBER_STATES,
    Action,
    Event,
    Guard,
)
from server.coordination.groups.events import Assignment


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A member's target assignment."""

    epoch: int
    assignment: Assignment
    subscribed: AbstractSet[uuid.UUID]
    """The existing topics that it is subscribed to; it gets no others."""
    owner: Callable[[uuid.UUID, int], str | None]
    """Returns the member that has a partition, or has not revoked it yet."""


def reconciled(
    member: ConsumerMember, target: Target, owned: Assignment | None, *, has_resubscribed: bool
) -> ConsumerMember:
    """Returns the member after one step; the same object if there is nothing to do.

    Args:
        owned: the partitions that it claims to have; None if the heartbeat does not say.
        has_resubscribed: its subscription has changed.
    """
    guard = _heartbeat_guard(member, target, owned, has_resubscribed=has_resubscribed)
    step = MEMBER_STATES.step(member.state, Event.HEARTBEAT, guard)
    match step.action:
        case Action.DROP:
            return _without_unwanted(member, target, owned)
        case Action.MOVE:
            return _next(member, target, owned)
        case _:
            assert step.action is Action.NOTHING
            return member


def _heartbeat_guard(
    member: ConsumerMember, target: Target, owned: Assignment | None, *, has_resubscribed: bool
) -> Guard:
    match member.state:
        case MemberState.UNREVOKED_PARTITIONS if _still_has(member.revoking, owned):
            return Guard.REVOKING_OTHER_TOPICS if has_resubscribed else Guard.REVOKING
        case MemberState.STABLE if member.epoch == target.epoch:
            return Guard.ARRIVED_OTHER_TOPICS if has_resubscribed else Guard.ARRIVED
        case _:
            return Guard.OTHERWISE


def _still_has(revoking: Holding, owned: Assignment | None) -> bool:
    return bool(revoking) and (owned is None or overlaps(revoking, owned))


def _without_unwanted(
    member: ConsumerMember, target: Target, owned: Assignment | None
) -> ConsumerMember:
    """Revoke topics that the member no longer subscribes to; the rest waits for the new target."""
    unwanted = {
        topic: has for topic, has in member.assigned.items() if topic not in target.subscribed
    }
    kept = {topic: has for topic, has in member.assigned.items() if topic not in unwanted}
    revoking = {
        topic: {**member.revoking.get(topic, {}), **unwanted.get(topic, {})}
        for topic in member.revoking.keys() | unwanted.keys()
    }
    guard = Guard.TO_REVOKE if _still_has(revoking, owned) else Guard.REVOKED
    step = MEMBER_STATES.step(member.state, Event.DROP, guard if unwanted else Guard.NONE_TO_DROP)
    match step.action:
        case Action.REVOKE:
            return _revoking(member, step.next_state, kept, revoking)
        case Action.KEEP:
            return replace(member.at(member.epoch), assigned=kept)
        case _:
            assert step.action is Action.NOTHING
            return member


def _revoking(
    member: ConsumerMember, state: MemberState, kept: Holding, revoking: Holding
) -> ConsumerMember:
    """Returns the member with partitions to revoke; it stays at its epoch."""
    return replace(member.at(member.epoch), state=state, assigned=kept, revoking=revoking)


def _next(member: ConsumerMember, target: Target, owned: Assignment | None) -> ConsumerMember:
    wanted = {
        topic: numbers for topic, numbers in target.assignment.items() if topic in target.subscribed
    }
    kept = _split(member.assigned, wanted, keep=True)
    revoking = _split(member.assigned, wanted, keep=False)
    if _still_has(revoking, owned):
        step = MEMBER_STATES.step(member.state, Event.MOVE, Guard.TO_REVOKE)
        assert step.action is Action.REVOKE
        return _revoking(member, step.next_state, kept, revoking)
    assigned, is_released = _taken(member, target, wanted, kept)
    guard = Guard.RELEASED if is_released else Guard.NOT_RELEASED
    step = MEMBER_STATES.step(member.state, Event.MOVE, guard)
    assert step.action is Action.TAKE
    moved = member.at(target.epoch)
    return replace(moved, state=step.next_state, assigned=assigned, revoking={})


def _taken(
    member: ConsumerMember, target: Target, wanted: Assignment, kept: Holding
) -> tuple[Holding, bool]:
    """Returns the kept partitions with the free ones of the target, and whether all were free."""
    is_released, taken = True, {topic: dict(has) for topic, has in kept.items()}
    for topic, numbers in wanted.items():
        for number in numbers - kept.get(topic, {}).keys():
            if target.owner(topic, number) in (None, member.member_id):
                taken.setdefault(topic, {})[number] = target.epoch
            else:
                is_released = False
    return taken, is_released


def _split(holding: Holding, wanted: Assignment, *, keep: bool) -> Holding:
    """Returns the wanted partitions of a holding, or the unwanted ones."""
    parts = {
        topic: {n: at for n, at in has.items() if (n in wanted.get(topic, ())) is keep}
        for topic, has in holding.items()
    }
    return {topic: has for topic, has in parts.items() if has}
