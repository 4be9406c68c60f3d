"""The existing topics, as groups see them: names, ids, partition counts. Pure."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Sequence, Sized
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
    """What can be read; `server/views/readable_topics.py` implements it."""

    @property
    def revision(self) -> int:
        """Changes whenever a topic is created, deleted or gets more partitions."""

    def get(self, name: str) -> KnownTopic | None: ...
    def by_id(self, topic_id: uuid.UUID) -> KnownTopic | None: ...
    def all(self) -> Sequence[KnownTopic]: ...
    def matchable(self) -> Sequence[KnownTopic]:
        """Returns the topics that regular expressions can match."""


class CatalogSnapshot:
    """The topics at one moment, for a thread: it reads them once, when it first needs them."""

    __slots__ = ("_by_id", "_by_name", "_matchable", "_topics", "revision")

    def __init__(self, topics: TopicCatalog) -> None:
        """Take the revision now. Topics may already be newer when they are read; then their revision
        differs, and the group's next heartbeat looks again."""
        self._topics = topics
        self.revision = topics.revision
        self._by_name: dict[str, KnownTopic] = {}
        self._by_id: dict[uuid.UUID, KnownTopic] = {}
        self._matchable: Sequence[KnownTopic] = ()

    def get(self, name: str) -> KnownTopic | None:
        self._read()
        return self._by_name.get(name)

    def by_id(self, topic_id: uuid.UUID) -> KnownTopic | None:
        self._read()
        return self._by_id.get(topic_id)

    def all(self) -> Sequence[KnownTopic]:
        self._read()
        return list(self._by_name.values())

    def matchable(self) -> Sequence[KnownTopic]:
        self._read()
        return self._matchable

    def _read(self) -> None:
        if not self._by_name:
            self._by_name = {topic.name: topic for topic in self._topics.all()}
            self._by_id = {topic.id: topic for topic in self._by_name.values()}
            self._matchable = self._topics.matchable()


def may_have_more_partitions(
    subscriptions: Iterable[Collection[str]], topics: TopicCatalog, than: int
) -> bool:
    """Returns whether these topics may have more than so many partitions; False is certain.

    The answer takes at most `than` look-ups. So each name counts at least once, also if it is repeated
    or there is no such topic.
    """
    count = 0
    for names in subscriptions:
        count += len(names)
        if count > than:
            return True
        for topic in map(topics.get, names):
            count += max(len(topic.partitions) - 1, 0) if topic is not None else 0
            if count > than:
                return True
    return False


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
