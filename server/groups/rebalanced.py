"""Shares of members that are not all subscribed to the same topics. Pure.

Everybody keeps what he has; what is free goes to whoever has least of those that may have it; then
parts are moved from who has most to who has least, until no move would make two members more alike.
Each move makes the sum of the squares of the shares smaller, so that comes to an end.
"""

from __future__ import annotations

import heapq
import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence

Part = tuple[uuid.UUID, int]


def rebalanced(
    parts: Sequence[Part],
    has: Mapping[str, Sequence[Part]],
    topics: Mapping[str, frozenset[uuid.UUID]],
) -> dict[str, list[Part]]:
    """The parts of each member.

    Args:
        parts: all of them; of each topic somebody may have them.
        has: by member what it keeps if it can; no part twice.
        topics: by member, those of which it may have parts.
    """
    readers = _readers(topics)
    shares = {member: list(kept) for member, kept in has.items()}
    kept = {part for share in shares.values() for part in share}
    free: dict[uuid.UUID, list[Part]] = defaultdict(list)
    for part in parts:
        if part not in kept:
            free[part[0]].append(part)
    for topic, its_parts in free.items():
        _share_out(its_parts, readers[topic], shares)
    while _move_some(shares, readers):
        pass
    return shares


def _readers(topics: Mapping[str, frozenset[uuid.UUID]]) -> dict[uuid.UUID, list[str]]:
    readers: dict[uuid.UUID, list[str]] = defaultdict(list)
    for member, its_topics in topics.items():
        for topic in its_topics:
            readers[topic].append(member)
    return readers


def _share_out(parts: Sequence[Part], readers: list[str], shares: dict[str, list[Part]]) -> None:
    """Give each part of a topic to whoever has least then; of equals, who comes first."""
    by_load = [(len(shares[member]), rank, member) for rank, member in enumerate(readers)]
    heapq.heapify(by_load)
    for part in parts:
        load, rank, member = by_load[0]
        shares[member].append(part)
        heapq.heapreplace(by_load, (load + 1, rank, member))


def _move_some(shares: dict[str, list[Part]], readers: Mapping[uuid.UUID, list[str]]) -> bool:
    """Let everybody, who has most first, give what he has too much of; whether anybody could."""
    has_moved = False
    for giver in sorted(shares, key=lambda member: len(shares[member]), reverse=True):
        if len(shares[giver]) > min(map(len, shares.values())) + 1:
            has_moved |= _give(giver, shares, readers)
    return has_moved


def _give(
    giver: str, shares: dict[str, list[Part]], readers: Mapping[uuid.UUID, list[str]]
) -> bool:
    """Let a member give parts to who has least of those that may have them; whether it could."""
    moved: set[Part] = set()
    takers: dict[uuid.UUID, str] = {}
    # What came last is what is least missed.
    for part in reversed(shares[giver]):
        topic = part[0]
        if topic not in takers:
            takers[topic] = _least(readers[topic], shares)
        if len(shares[takers[topic]]) + 1 < len(shares[giver]) - len(moved):
            shares[takers[topic]].append(part)
            moved.add(part)
            takers.clear()
    if moved:
        shares[giver] = [part for part in shares[giver] if part not in moved]
    return bool(moved)


def _least(members: list[str], shares: Mapping[str, list[Part]]) -> str:
    return min(members, key=lambda member: len(shares[member]))
