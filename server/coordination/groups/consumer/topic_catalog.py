"""The existing topics, as groups see them: names, ids, partition counts. Pure."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence, Sized
from collections.abc import Set as AbstractSet
from typing import Protocol

import xxhash

NAMES_LOOKED_UP = 1_000
"""Up to this many names are looked up one by one; for more, all topics are scanned instead."""

Subscriptions = Iterable[AbstractSet[str]]
"""Sets of topic names. A large set is never copied: that would hold the event loop."""


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


def existing(subscriptions: Subscriptions, topics: TopicCatalog) -> list[KnownTopic]:
    """Returns the existing topics with a name in one of these sets; a member may name any number."""
    names: set[str] = set()
    large: list[AbstractSet[str]] = []
    for each in subscriptions:
        if len(each) > NAMES_LOOKED_UP:
            large.append(each)
        else:
            names |= each
    if not large and len(names) <= NAMES_LOOKED_UP:
        return [topic for topic in map(topics.get, names) if topic is not None]
    large.append(names)
    return [topic for topic in topics.all() if any(topic.name in each for each in large)]


def ids_of(subscriptions: Subscriptions, topics: TopicCatalog) -> frozenset[uuid.UUID]:
    """Returns the ids of the existing topics with a name in one of these sets."""
    return frozenset(topic.id for topic in existing(subscriptions, topics))


def metadata_hash(subscriptions: Subscriptions, topics: TopicCatalog) -> int:
    """Returns a hash that changes when one of these topics is created, deleted or grows; 0 for no
    topics. Only this broker compares it; Kafka stores a different hash in the same field."""
    found = sorted(
        (topic.name, str(topic.id), len(topic.partitions))
        for topic in existing(subscriptions, topics)
    )
    unsigned = xxhash.xxh3_64_intdigest(repr(found).encode(errors="surrogatepass"))
    return unsigned - (1 << 63) if found else 0
