"""Who shall read which partitions of a consumer group: the assignors of the broker. Pure.

    uniform   as many partitions for each member, however many of each topic
    range     of each topic as many for each member; of topics with as many partitions the same ones,
              where all members are subscribed to them, so that their records can be joined

Both leave with a member what it has, as far as that is fair (sticky), and neither looks at racks.
Every partition of a topic that somebody is subscribed to goes to exactly one of those.

Source: Apache Kafka, UniformAssignor.java, RangeAssignor.java; KIP-848.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from server.groups.rebalanced import rebalanced

Assignment = Mapping[uuid.UUID, frozenset[int]]
"""Partitions by the id of their topic; no topic without partitions."""

Part = tuple[uuid.UUID, int]

P = TypeVar("P", bound=tuple[uuid.UUID, int] | int)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscriber:
    """A member, as an assignor sees it."""

    member_id: str
    instance_id: str | None = None
    topics: frozenset[uuid.UUID]
    """Those that exist, of the topics that it wants to read."""
    has: Assignment = field(default_factory=dict)
    """What it was to read up to now."""

    @property
    def rank(self) -> tuple[bool, str]:
        """Static members first, in an order that outlasts their member ids."""
        return self.instance_id is None, self.instance_id or self.member_id


Assignor = Callable[[Sequence[Subscriber], Mapping[uuid.UUID, int]], dict[str, Assignment]]
"""Gives each member, by its id, what it shall read; the mapping says how many partitions a topic has."""


def uniform(
    subscribers: Sequence[Subscriber], counts: Mapping[uuid.UUID, int]
) -> dict[str, Assignment]:
    """As many partitions for each; as even as subscriptions allow where they differ."""
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
    """Of each topic as many partitions for each."""
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
"""By the names that clients ask for."""


def even_shares(parts: Iterable[P], has: Mapping[str, Sequence[P]]) -> dict[str, list[P]]:
    """Share parts out so that nobody has two more than another; members keep what is fair.

    Args:
        has: by member, in the order in which they are served; parts that exist, each once.
    """
    free = dict.fromkeys(parts)
    quota, spare = divmod(len(free), len(has)) if has else (0, 0)
    shares: dict[str, list[P]] = {}
    for member_id, kept in has.items():
        # Whoever has more than the others may have the one that is left over.
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
    """The same parts, by topic."""
    by_topic: dict[uuid.UUID, set[int]] = defaultdict(set)
    for topic, number in parts:
        by_topic[topic].add(number)
    return {topic: frozenset(numbers) for topic, numbers in by_topic.items()}


def _parts(member: Subscriber, counts: Mapping[uuid.UUID, int]) -> list[Part]:
    """What a member has of what it may have."""
    return [
        (topic, number)
        for topic in sorted(member.has.keys() & member.topics)
        for number in _numbers(member, topic, counts[topic])
    ]


def _numbers(member: Subscriber, topic: uuid.UUID, count: int) -> list[int]:
    return sorted(number for number in member.has.get(topic, ()) if number < count)
