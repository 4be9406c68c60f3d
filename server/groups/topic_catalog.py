"""The topics there are, as groups see them: names, ids, numbers of partitions. Pure."""

from __future__ import annotations

import uuid
from collections.abc import Sequence, Sized
from collections.abc import Set as AbstractSet
from typing import Protocol

import xxhash

NAMES_LOOKED_UP = 1_000
"""So many names are looked up one by one; with more, all topics are looked through instead."""


class KnownTopic(Protocol):
    """A topic that exists."""

    @property
    def name(self) -> str: ...
    @property
    def id(self) -> uuid.UUID: ...
    @property
    def partitions(self) -> Sized: ...


class TopicCatalog(Protocol):
    """All of them; `server/topics.py` is one."""

    @property
    def revision(self) -> int:
        """Another one whenever a topic comes, goes or grows."""

    def get(self, name: str) -> KnownTopic | None: ...
    def by_id(self, topic_id: uuid.UUID) -> KnownTopic | None: ...
    def all(self) -> Sequence[KnownTopic]: ...


def existing(names: AbstractSet[str], topics: TopicCatalog) -> list[KnownTopic]:
    """The topics of these names, of which a member may have named any number."""
    if len(names) > NAMES_LOOKED_UP:
        return [topic for topic in topics.all() if topic.name in names]
    return [topic for topic in map(topics.get, names) if topic is not None]


def ids_of(names: AbstractSet[str], topics: TopicCatalog) -> frozenset[uuid.UUID]:
    """Of those that exist."""
    return frozenset(topic.id for topic in existing(names, topics))


def metadata_hash(names: AbstractSet[str], topics: TopicCatalog) -> int:
    """Another number whenever one of these topics comes, goes or grows; 0 for none. It is our own,
    and compared to no other; Kafka has another one in the same place."""
    found = sorted(
        (topic.name, str(topic.id), len(topic.partitions)) for topic in existing(names, topics)
    )
    unsigned = xxhash.xxh3_64_intdigest(repr(found).encode(errors="surrogatepass"))
    return unsigned - (1 << 63) if found else 0
