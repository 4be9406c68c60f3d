"""The topics there are, as groups see them: names, ids, numbers of partitions. Pure."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence, Sized
from typing import Protocol

import xxhash


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


def ids_of(names: Iterable[str], topics: TopicCatalog) -> frozenset[uuid.UUID]:
    """Of those that exist."""
    return frozenset(topic.id for topic in map(topics.get, names) if topic is not None)


def metadata_hash(names: Iterable[str], topics: TopicCatalog) -> int:
    """Another number whenever one of these topics comes, goes or grows; 0 for none. It is our own,
    and compared to no other; Kafka has another one in the same place."""
    found = sorted(
        (topic.name, str(topic.id), len(topic.partitions))
        for topic in map(topics.get, names)
        if topic is not None
    )
    unsigned = xxhash.xxh3_64_intdigest(repr(found).encode(errors="surrogatepass"))
    return unsigned - (1 << 63) if found else 0
