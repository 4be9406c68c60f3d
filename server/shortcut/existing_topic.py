"""Finds the topic of a plain request."""

from __future__ import annotations

import uuid
from typing import Protocol, TypeVar

from server.topics.topic import Topic
from server.views.latest_view import LatestView
from server.views.snapshot_topic import SnapshotTopic

T_co = TypeVar("T_co", bound=Topic | LatestView | SnapshotTopic, covariant=True)


class Findable(Protocol[T_co]):
    """The topics, with or without what else clients can read."""

    def get(self, name: str, /) -> T_co | None: ...
    def by_id(self, topic_id: uuid.UUID, /) -> T_co | None: ...


def existing_topic(topics: Findable[T_co], named: bytes, *, is_id: bool) -> T_co | None:
    """Returns a topic that clients may read, and write unless it is a view or in a snapshot.

    None if there is none.

    Args:
        named: its name as UTF-8, which may be wrong, or the 16 bytes of its id.
    """
    by_id = topics.by_id(uuid.UUID(bytes=named)) if is_id else None
    topic = by_id if is_id else topics.get(named.decode(errors="replace"))
    return None if topic is None or topic.is_internal else topic
