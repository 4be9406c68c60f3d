"""Which names a topic may have, and the text of topic ids.

Source: Apache Kafka, Topic.java, Uuid.java.
"""

from __future__ import annotations

import base64
import re
import uuid
from collections.abc import Callable, Iterable

from storage.paths import topic_id_text

NAME_LENGTH_MAX = 249
INVALID = "Topic name is invalid"
LEGAL = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)


def fault_of_name(name: str) -> str | None:
    """Why a topic may not be called so, in Kafka's words; None if it may."""
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
    """The same for names that only differ in '.' and '_': Kafka's metrics take them for one."""
    return name.replace(".", "_")


def colliding_name(name: str, existing: Iterable[str]) -> str | None:
    """An existing other topic whose name collides with `name`."""
    key = collision_key(name)
    return next(
        (other for other in existing if other != name and collision_key(other) == key), None
    )


def new_topic_id(random_uuid: Callable[[], uuid.UUID] = uuid.uuid4) -> uuid.UUID:
    """A topic id: random, not zero, and its text does not look like an option of a command."""
    while True:
        topic_id = random_uuid()
        if topic_id.int and not topic_id_text(topic_id).startswith("-"):
            return topic_id


def parse_id(text: str) -> uuid.UUID:
    """The id that `topic_id_text` wrote. Raises ValueError."""
    return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))
