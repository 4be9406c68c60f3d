"""Validates topic names, and generates and parses topic ids.

Source: Apache Kafka, Topic.java, Uuid.java.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable

from storage.files.paths import topic_id_of, topic_id_text

NAME_LENGTH_MAX = 249
INVALID = "Topic name is invalid"
LEGAL = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)


def fault_of_name(name: str) -> str | None:
    """Returns why this is not a valid topic name, in Kafka's words; None if it is."""
    if not name:
        return f"{INVALID}: the empty string is not allowed"
    if name in (".", ".."):
        return f"{INVALID}: '{name}' is not allowed"
    if len(name) > NAME_LENGTH_MAX:
        return (
            f"{INVALID}: the length of '{name}' is longer than the max allowed length"
            f" {NAME_LENGTH_MAX}"
        )
    if not LEGAL.fullmatch(name):
        return (
            f"{INVALID}: '{name}' contains one or more characters other than ASCII alphanumerics,"
            " '.', '_' and '-'"
        )
    return None


def collision_key(name: str) -> str:
    """Returns the same key for names that differ only in '.' and '_': Kafka's metrics confuse them."""
    return name.replace(".", "_")


def new_topic_id(random_uuid: Callable[[], uuid.UUID] = uuid.uuid4) -> uuid.UUID:
    """Returns a random topic id that is not zero and whose text does not look like a command option."""
    while True:
        topic_id = random_uuid()
        if topic_id.int and not topic_id_text(topic_id).startswith("-"):
            return topic_id


def parse_id(text: str) -> uuid.UUID:
    """Returns the id in a text of `topic_id_text`. Raises ValueError."""
    return topic_id_of(text)
