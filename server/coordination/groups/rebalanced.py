"""Balances partitions among members with different subscriptions. Pure.

Members keep their parts; free parts go to the least loaded eligible member; then parts move from the
most loaded to the least loaded members until no move would bring two members closer together. Each move
reduces the sum of the squares of the loads, so this terminates.
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
    """Returns the parts of each member.

    Args:
        parts: all parts; each topic has at least one eligible member.
        has: the parts that each member keeps if possible; no part occurs twice.
        topics: the topics of which each member may have parts.
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
    """Give each part of a topic to the least loaded reader; the first one wins a tie."""
    by_load = [(len(shares[member]), rank, member) for rank, member in enumerate(readers)]
    heapq.heapify(by_load)
    for part in parts:
        load, rank, member = by_load[0]
        shares[member].append(part)
        heapq.heapreplace(by_load, (load + 1, rank, member))


def _move_some(shares: dict[str, list[Part]], readers: Mapping[uuid.UUID, list[str]]) -> bool:
    """Let overloaded members, the most loaded first, give parts away. Returns whether any part moved."""
    has_moved = False
    for giver in sorted(shares, key=lambda member: len(shares[member]), reverse=True):
        if len(shares[giver]) > min(map(len, shares.values())) + 1:
            has_moved |= _give(giver, shares, readers)
    return has_moved


def _give(
    giver: str, shares: dict[str, list[Part]], readers: Mapping[uuid.UUID, list[str]]
) -> bool:
    """Move a member's parts to the least loaded eligible members. Returns whether any part moved."""
    moved: set[Part] = set()
    takers: dict[uuid.UUID, str] = {}
    # Move the latest parts first: the member has done the least work on them.
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
