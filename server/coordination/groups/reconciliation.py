"""Moves a member from its current to its target assignment: it revokes first, then gets new partitions.

                       it has to revoke partitions
    STABLE ------------------------------------> UNREVOKED_PARTITIONS
      |  ^ \\                                       | it confirms the revocation
      |  |  +----------- nothing to wait for -------+
      |  |                                          |
      v  | others have released them                | others still have partitions of its target
    UNRELEASED_PARTITIONS <-------------------------+

While it has partitions to revoke, it stays at its epoch. Then it goes to the target's epoch, and gets
the free partitions of its target. So no partition ever belongs to two members. Pure.

Source: Apache Kafka, CurrentAssignmentBuilder.java; KIP-848.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from server.coordination.groups.assignors import Assignment
from server.coordination.groups.consumer_member import (
    ConsumerMember,
    Holding,
    MemberState,
    overlaps,
)


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
    match member.state:
        case MemberState.UNREVOKED_PARTITIONS if _still_has(member.revoking, owned):
            return _without_unwanted(member, target, owned) if has_resubscribed else member
        case MemberState.STABLE if member.epoch == target.epoch:
            return _without_unwanted(member, target, owned) if has_resubscribed else member
        case _:
            return _next(member, target, owned)


def _still_has(revoking: Holding, owned: Assignment | None) -> bool:
    return bool(revoking) and (owned is None or overlaps(revoking, owned))


def _without_unwanted(
    member: ConsumerMember, target: Target, owned: Assignment | None
) -> ConsumerMember:
    """Revoke topics that the member no longer subscribes to; the rest waits for the new target."""
    unwanted = {
        topic: has for topic, has in member.assigned.items() if topic not in target.subscribed
    }
    if not unwanted:
        return member
    kept = {topic: has for topic, has in member.assigned.items() if topic not in unwanted}
    revoking = {
        topic: {**member.revoking.get(topic, {}), **unwanted.get(topic, {})}
        for topic in member.revoking.keys() | unwanted.keys()
    }
    if _still_has(revoking, owned):
        state = MemberState.UNREVOKED_PARTITIONS
        return replace(member.at(member.epoch), state=state, assigned=kept, revoking=revoking)
    return replace(member.at(member.epoch), assigned=kept)


def _next(member: ConsumerMember, target: Target, owned: Assignment | None) -> ConsumerMember:
    wanted = {
        topic: numbers for topic, numbers in target.assignment.items() if topic in target.subscribed
    }
    kept = _split(member.assigned, wanted, keep=True)
    revoking = _split(member.assigned, wanted, keep=False)
    if _still_has(revoking, owned):
        state = MemberState.UNREVOKED_PARTITIONS
        return replace(member.at(member.epoch), state=state, assigned=kept, revoking=revoking)
    waits, assigned = False, {topic: dict(has) for topic, has in kept.items()}
    for topic, numbers in wanted.items():
        for number in numbers - kept.get(topic, {}).keys():
            if target.owner(topic, number) in (None, member.member_id):
                assigned.setdefault(topic, {})[number] = target.epoch
            else:
                waits = True
    state = MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE
    return replace(member.at(target.epoch), state=state, assigned=assigned, revoking={})


def _split(holding: Holding, wanted: Assignment, *, keep: bool) -> Holding:
    """Returns the wanted partitions of a holding, or the unwanted ones."""
    parts = {
        topic: {n: at for n, at in has.items() if (n in wanted.get(topic, ())) is keep}
        for topic, has in holding.items()
    }
    return {topic: has for topic, has in parts.items() if has}
