"""The existing topics, as groups see them: names, ids, partition counts. Pure."""

from __future__ import annotations

import uuid
from collections.abc import Sequence, Sized
from collections.abc import Set as AbstractSet
from typing import Protocol

import xxhash

NAMES_LOOKED_UP = 1_000
"""Up to this many names are looked up one by one; beyond, all topics are scanned instead."""


class KnownTopic(Protocol):
    """A topic that exists."""

    @property
    def name(self) -> str: ...
    @property
    def id(self) -> uuid.UUID: ...
    @property
    def partitions(self) -> Sized: ...


class TopicCatalog(Protocol):
    """All topics; `server/topics/topics.py` implements it."""

    @property
    def revision(self) -> int:
        """Changes whenever a topic is created, deleted or gets more partitions."""

    def get(self, name: str) -> KnownTopic | None: ...
    def by_id(self, topic_id: uuid.UUID) -> KnownTopic | None: ...
    def all(self) -> Sequence[KnownTopic]: ...


def existing(names: AbstractSet[str], topics: TopicCatalog) -> list[KnownTopic]:
    """Returns the existing topics with these names; a member may name any number."""
    if len(names) > NAMES_LOOKED_UP:
        return [topic for topic in topics.all() if topic.name in names]
    return [topic for topic in map(topics.get, names) if topic is not None]


def ids_of(names: AbstractSet[str], topics: TopicCatalog) -> frozenset[uuid.UUID]:
    """Returns the ids of the existing topics with these names."""
    return frozenset(topic.id for topic in existing(names, topics))


def metadata_hash(names: AbstractSet[str], topics: TopicCatalog) -> int:
    """Returns a hash that changes when one of these topics is created, deleted or grows; 0 for no
    topics. Only this broker compares it; Kafka stores a different hash in the same field."""
    found = sorted(
        (topic.name, str(topic.id), len(topic.partitions)) for topic in existing(names, topics)
    )
    unsigned = xxhash.xxh3_64_intdigest(repr(found).encode(errors="surrogatepass"))
    return unsigned - (1 << 63) if found else 0
