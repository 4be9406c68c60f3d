"""The plan of a random history: its programs, and when they and their broker are killed (pure)."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum

PARTITIONS = 2


class Event(StrEnum):
    """An event in a history."""

    BROKER = "broker"
    """It is killed."""
    BROKER_AT_COMMIT = "broker at commit"
    """It is killed while a program waits for its commit."""
    CLIENT = "client"
    CLIENT_AT_COMMIT = "client at commit"
    ZOMBIE = "zombie"
    """A second instance of a program is started."""
    ABANDON = "abandon"
    """The feeder is killed for good; its transaction is left to its timeout."""
    LOOK = "look"
    """A reader reads everything."""


@dataclass(frozen=True, slots=True)
class Work:
    """One program."""

    client: str
    group: str
    """`-` for a feeder."""
    partitions: tuple[int, ...]
    is_member: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """The choices made by a history's seed."""

    seed: int
    works: tuple[Work, ...]
    events: tuple[tuple[float, Event], ...]
    """Seconds after the feeder's first commit, and the event at that time."""


WITHOUT_STABLE_OFFSETS = frozenset({"aiokafka"})
"""Clients whose members may get an offset that a transaction is about to move (KIP-447)."""


def plan_of(seed: int, clients: tuple[str, ...], seconds: float = 1.0) -> Plan:
    """Returns the plan; the same for the same seed and clients."""
    choices = random.Random(seed)
    feeders = [client for client in clients if not client.startswith("java-")]
    works = [Work(choices.choice(feeders or ["confluent-kafka"]), "-", ())]
    for group in (f"red-{seed}", f"green-{seed}")[: choices.randrange(1, 3)]:
        works += _workers(choices, clients, group)
    events = [*Event, *(event for event in Event if "commit" in event)]
    picked = choices.sample(events, choices.randrange(1, 5))
    moments = sorted(choices.uniform(0, seconds) for _ in picked)
    return Plan(seed, tuple(works), tuple(zip(moments, picked, strict=True)))


def _workers(choices: random.Random, clients: tuple[str, ...], group: str) -> list[Work]:
    """Returns one worker for all partitions, one for each, or members with coordinator-assigned ones."""
    everything = tuple(range(PARTITIONS))
    picked = [choices.choice(clients) for _ in everything]
    if choices.random() < 0.3 and not WITHOUT_STABLE_OFFSETS & set(picked):
        return [Work(client, group, everything, is_member=True) for client in picked]
    if choices.random() < 0.3:
        return [Work(picked[0], group, everything)]
    pairs = zip(picked, everything, strict=True)
    return [Work(client, group, (partition,)) for client, partition in pairs]
