"""What the metadata that a standby follows says about topics."""

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


def partition_count(machine: MetadataMachine, name: str, topic_id: uuid.UUID) -> int:
    """Returns how many partitions a topic has; 0 if there is none of this name and id."""
    entry = machine.entries.get(TOPICS + name)
    topic = None if entry is None else _topic(name, entry.value)
    return 0 if topic is None or topic.id != topic_id else topic.partitions_count


def _topic(name: str, value: str) -> FollowedTopic:
    content = json.loads(value)
    partitions = content["partitions"]
    # An earlier release kept the directory of each partition here.
    count = len(partitions) if isinstance(partitions, list) else int(partitions)
    return FollowedTopic(name=name, id=parse_id(content["id"]), partitions_count=count)
