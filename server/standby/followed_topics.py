"""Which coordinators' topics a standby follows: what the followed metadata says about them."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass

from server.coordination.coordinator_topic import OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from server.metadata.machine import MetadataMachine
from server.topics.keys import TOPICS
from server.topics.names import parse_id

COORDINATOR_TOPICS = (OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC)


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedTopic:
    """A topic to follow."""

    name: str
    id: uuid.UUID
    partitions_count: int


def followed_topics(machine: MetadataMachine) -> tuple[FollowedTopic, ...]:
    """Returns the coordinators' topics that exist."""
    found = []
    for name in COORDINATOR_TOPICS:
        entry = machine.entries.get(TOPICS + name)
        if entry is not None:
            found.append(_topic(name, entry.value))
    return tuple(found)


def _topic(name: str, value: str) -> FollowedTopic:
    content = json.loads(value)
    partitions = content["partitions"]
    # An earlier release kept the directory of each partition here.
    count = len(partitions) if isinstance(partitions, list) else int(partitions)
    return FollowedTopic(name=name, id=parse_id(content["id"]), partitions_count=count)
