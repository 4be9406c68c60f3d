"""The broker's assignors: they decide which member of a consumer group reads which partitions. Pure.

    uniform   gives each member the same number of partitions, regardless of their topics
    range     gives each member the same number of partitions of each topic; where all members are
              subscribed to topics with equal partition counts, a member gets the same partition
              numbers of each, so that it can join their records

Both let members keep their partitions as far as the balance allows (sticky); neither considers racks.
Every partition of a topic with subscribers goes to exactly one of the subscribers.

Source: Apache Kafka, UniformAssignor.java, RangeAssignor.java; KIP-848.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from server.coordination.groups.rebalanced import rebalanced

Assignment = Mapping[uuid.UUID, frozenset[int]]
"""Partitions by topic id; a topic without partitions is absent."""

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
