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
    """Seconds after the start, and what happens: `broker` and `client` are kills, `look` is a read."""


def plan_of(seed: int, clients: tuple[str, ...], seconds: float = 1.5) -> Plan:
    """The same for the same seed and clients."""
    choices = random.Random(seed)
    works = [Work("confluent-kafka", "-", ())]
    for group in (f"red-{seed}", f"green-{seed}")[: choices.randrange(1, 3)]:
        if choices.random() < 0.7:
            works += [
                Work(choices.choice(clients), group, (partition,))
                for partition in range(PARTITIONS)
            ]
        else:
            works.append(Work(choices.choice(clients), group, tuple(range(PARTITIONS))))
    kinds = ["look", "look", choices.choice(["broker", "client"]), "client", "broker"]
    picked = choices.sample(kinds, choices.randrange(2, 6))
    events = sorted((choices.uniform(0.3, seconds), kind) for kind in picked)
    return Plan(seed, tuple(works), tuple(events))
