"""How a member comes from what it has to what it shall have: it revokes first, and is assigned then.

                       it has to give something up
    STABLE ------------------------------------> UNREVOKED_PARTITIONS
      |  ^ \\                                       | it says that it has not got it any more
      |  |  +----------- nothing to wait for -------+
      |  |                                          |
      v  | others have given it up                  | others still have what it shall have
    UNRELEASED_PARTITIONS <-------------------------+

As long as it has something to give up it stays at its epoch; else it goes to the target's, with all
that is free of what it shall have. So no partition ever belongs to two members. Pure.

Source: Apache Kafka, CurrentAssignmentBuilder.java; KIP-848.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from server.groups.assignors import Assignment
from server.groups.consumer_member import (
    ConsumerMember,
    Holding,
    MemberState,
    overlaps,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where a member shall come to."""

    epoch: int
    assignment: Assignment
    subscribed: AbstractSet[uuid.UUID]
    """The topics that it wants, as far as they exist; it gets no other."""
    owner: Callable[[uuid.UUID, int], str | None]
    """The member that has a partition, or has not given it up yet."""


def reconciled(
    member: ConsumerMember, target: Target, owned: Assignment | None, *, has_resubscribed: bool
) -> ConsumerMember:
    """The member one step further; the same one, if there is none.

    Args:
        owned: what it says it has; None if it does not say.
        has_resubscribed: it does not want the same topics any more.
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
    """Take away topics that it is not subscribed to any more; the rest waits for the target."""
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
    """What of a holding is wanted, or what is not."""
    parts = {
        topic: {n: at for n, at in has.items() if (n in wanted.get(topic, ())) is keep}
        for topic, has in holding.items()
    }
    return {topic: has for topic, has in parts.items() if has}
