"""Shares of members that are not all subscribed to the same topics. Pure.

Everybody keeps what he has; what is free goes to whoever has least of those that may have it; then
parts are moved from who has most to who has least, until no move would make two members more alike.
Each move makes the sum of the squares of the shares smaller, so that comes to an end.
"""

from __future__ import annotations

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
    for part in parts:
        if part not in kept:
            least = min(readers[part[0]], key=lambda member: len(shares[member]))
            shares[least].append(part)
    while _move_some(shares, readers):
        pass
    return shares


def _readers(topics: Mapping[str, frozenset[uuid.UUID]]) -> dict[uuid.UUID, list[str]]:
    readers: dict[uuid.UUID, list[str]] = defaultdict(list)
    for member, its_topics in topics.items():
        for topic in its_topics:
            readers[topic].append(member)
    return readers


def _move_some(shares: dict[str, list[Part]], readers: Mapping[uuid.UUID, list[str]]) -> bool:
    """Let everybody, who has most first, give what he has too much of; whether anybody could."""
    has_moved = False
    for giver in sorted(shares, key=lambda member: len(shares[member]), reverse=True):
        has_moved |= _give(giver, shares, readers)
    return has_moved


def _give(
    giver: str, shares: dict[str, list[Part]], readers: Mapping[uuid.UUID, list[str]]
) -> bool:
    has_moved = False
    # What came last is what is least missed.
    for part in reversed(tuple(shares[giver])):
        taker = min(readers[part[0]], key=lambda member: len(shares[member]))
        if len(shares[taker]) + 1 < len(shares[giver]):
            shares[giver].remove(part)
            shares[taker].append(part)
            has_moved = True
    return has_moved
