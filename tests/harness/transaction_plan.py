"""What a random history does: its programs, and when they and their broker are killed (pure)."""

from __future__ import annotations

import random
from dataclasses import dataclass

PARTITIONS = 2


@dataclass(frozen=True, slots=True)
class Work:
    """One program."""

    client: str
    group: str
    """`-` of a feeder."""
    partitions: tuple[int, ...]
    is_member: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """What a history's seed chooses."""

    seed: int
    works: tuple[Work, ...]
    events: tuple[tuple[float, str], ...]
    """Seconds after the start, and what happens: `broker` and `client` are kills, a `zombie` is a client
    that is started beside itself, a `look` is a read."""


WITHOUT_STABLE_OFFSETS = frozenset({"aiokafka"})
"""Clients whose members may be given an offset that a transaction is about to move (KIP-447)."""


def plan_of(seed: int, clients: tuple[str, ...], seconds: float = 1.2) -> Plan:
    """The same for the same seed and clients."""
    choices = random.Random(seed)
    works = [Work("confluent-kafka", "-", ())]
    for group in (f"red-{seed}", f"green-{seed}")[: choices.randrange(1, 3)]:
        works += _workers(choices, clients, group)
    kinds = ["broker", "client", "zombie", "look", choices.choice(["broker", "client", "look"])]
    picked = choices.sample(kinds, choices.randrange(2, 6))
    events = sorted((choices.uniform(0.3, seconds), kind) for kind in picked)
    return Plan(seed, tuple(works), tuple(events))


def _workers(choices: random.Random, clients: tuple[str, ...], group: str) -> list[Work]:
    """One for all partitions, or one for each; or members that the group's coordinator gives them to."""
    everything = tuple(range(PARTITIONS))
    picked = [choices.choice(clients) for _ in everything]
    if choices.random() < 0.3 and not WITHOUT_STABLE_OFFSETS & set(picked):
        return [Work(client, group, everything, is_member=True) for client in picked]
    if choices.random() < 0.3:
        return [Work(picked[0], group, everything)]
    pairs = zip(picked, everything, strict=True)
    return [Work(client, group, (partition,)) for client, partition in pairs]
