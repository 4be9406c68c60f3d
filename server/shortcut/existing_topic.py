"""Finds the topic of a plain request."""

from __future__ import annotations

import uuid

from server.topics.topic import Topic
from server.topics.topics import Topics


def existing_topic(topics: Topics, named: bytes, *, is_id: bool) -> Topic | None:
    """Returns a topic that clients may write and read; None if there is none.

    Args:
        named: its name as UTF-8, which may be wrong, or the 16 bytes of its id.
    """
    by_id = topics.by_id(uuid.UUID(bytes=named)) if is_id else None
    topic = by_id if is_id else topics.get(named.decode(errors="replace"))
    return None if topic is None or topic.is_internal else topic
