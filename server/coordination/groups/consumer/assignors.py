"""The broker's assignors: they decide which member of a consumer group reads which partitions. Pure.

    uniform   gives each member the same number of partitions, regardless of their topics
    range     gives each member the same number of partitions of each topic; where all members are
              subscribed to topics with equal partition counts, a member gets the same partition
              numbers of each, so that it can join their records

Both let members keep their partitions as far as the balance allows (sticky); neither considers racks.
Every partition of a topic with subscribers goes to exactly one of the subscribers.

If the members have different subscriptions, `uniform` lets them keep their parts, gives free parts to
the least loaded eligible member, and then moves parts from the most loaded to the least loaded members
until no move would bring two members closer together. Each move reduces the sum of the squares of the
loads, so this terminates.

Source: Apache Kafka, UniformAssignor.java, RangeAssignor.java; KIP-848.
"""

from __future__ import annotations

import heapq
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from server.coordination.groups.events import Assignment

Part = tuple[uuid.UUID, int]

P = TypeVar("P", bound=tuple[uuid.UUID, int] | int)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscriber:
    """A member as an assignor sees it."""

    member_id: str
    instance_id: str | None = None
    topics: frozenset[uuid.UUID]
    """The existing topics that it is subscribed to."""
    has: Assignment = field(default_factory=dict)
    """Its previous target assignment."""

    @property
    def rank(self) -> tuple[bool, str]:
        """Sort key: static members first, in an order that survives a change of their member ids."""
        return self.instance_id is None, self.instance_id or self.member_id


Assignor = Callable[[Sequence[Subscriber], Mapping[uuid.UUID, int]], dict[str, Assignment]]
"""Returns the new target assignment by member id; the mapping gives each topic's partition count."""


def uniform(
    subscribers: Sequence[Subscriber], counts: Mapping[uuid.UUID, int]
) -> dict[str, Assignment]:
    """Assign the same number of partitions to each member, as far as the subscriptions allow."""
    members = sorted(subscribers, key=lambda each: each.rank)
    wanted = sorted(frozenset[uuid.UUID]().union(*(each.topics for each in members)))
    parts = [(topic, number) for topic in wanted for number in range(counts[topic])]
    has = {each.member_id: _parts(each, counts) for each in members}
    if len({each.topics for each in members}) <= 1:
        shares = even_shares(parts, has)
    else:
        shares = rebalanced(parts, has, {each.member_id: each.topics for each in members})
    return {member_id: assignment_of(share) for member_id, share in shares.items()}


def range_assignor(
    subscribers: Sequence[Subscriber], counts: Mapping[uuid.UUID, int]
) -> dict[str, Assignment]:
    """Assign the same number of partitions of each topic to each of its subscribers."""
    members = sorted(subscribers, key=lambda each: each.rank)
    by_topic: dict[uuid.UUID, list[Subscriber]] = defaultdict(list)
    for member in members:
        for topic in member.topics:
            by_topic[topic].append(member)
    parts: dict[str, list[Part]] = {each.member_id: [] for each in members}
    for topic, readers in by_topic.items():
        has = {each.member_id: _numbers(each, topic, counts[topic]) for each in readers}
        for member_id, numbers in even_shares(range(counts[topic]), has).items():
            parts[member_id] += [(topic, number) for number in numbers]
    return {member_id: assignment_of(share) for member_id, share in parts.items()}


ASSIGNORS: Mapping[str, Assignor] = {"uniform": uniform, "range": range_assignor}
"""By the names that clients send."""


def even_shares(parts: Iterable[P], has: Mapping[str, Sequence[P]]) -> dict[str, list[P]]:
    """Divide the parts so that shares differ by at most one; members keep what a fair share allows.

    Args:
        has: the current parts by member, in the order in which members are served; each part exists
            and occurs once.
    """
    free = dict.fromkeys(parts)
    quota, spare = divmod(len(free), len(has)) if has else (0, 0)
    shares: dict[str, list[P]] = {}
    for member_id, kept in has.items():
        # A member that already has more than the quota keeps a spare part, so that fewer parts
        # move.
        keeps_spare = len(kept) > quota and spare > 0
        spare -= keeps_spare
        shares[member_id] = list(kept[: quota + keeps_spare])
        for part in shares[member_id]:
            del free[part]
    rest = iter(free)
    for share in shares.values():
        lacks = max(quota - len(share), 0)
        if spare and len(share) + lacks == quota:
            lacks, spare = lacks + 1, spare - 1
        share += [next(rest) for _ in range(lacks)]
    return shares


def assignment_of(parts: Iterable[Part]) -> Assignment:
    """Returns the same parts grouped by topic."""
    by_topic: dict[uuid.UUID, set[int]] = defaultdict(set)
    for topic, number in parts:
        by_topic[topic].add(number)
    return {topic: frozenset(numbers) for topic, numbers in by_topic.items()}


def _parts(member: Subscriber, counts: Mapping[uuid.UUID, int]) -> list[Part]:
    """Returns the partitions that a member has and is still allowed to have."""
    return [
        (topic, number)
        for topic in sorted(member.has.keys() & member.topics)
        for number in _numbers(member, topic, counts[topic])
    ]


def _numbers(member: Subscriber, topic: uuid.UUID, count: int) -> list[int]:
    return sorted(number for number in member.has.get(topic, ()) if number < count)


# Members with different subscriptions.


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
