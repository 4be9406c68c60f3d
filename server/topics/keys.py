"""The keys and values of topics in the metadata stores.

The cluster's store says which topics exist:

/topics/<name>     {"id": "...", "partitions": <count>, "configs": {...}}

The node's store says what this broker has of them. An entry is written before the topic, or its
additional partitions, are in the cluster's store, and removed after they are no longer there:

/placed/<id>       {"name": "...", "directories": ["<directory id>", ...], "partitions": [<index>, ...]}
                   the directory of each partition's log, as an index into `directories`; -1: not known
/unsettled/<id>/<n>  its logs from partition <n> on may have no files yet, and these were never synced:
                   if nothing was written to one, it may be missing at a start, and is created
/deleted/<id>      {"name": "..."}: if the topic is not in the cluster's store, its files are still to
                   be removed
/put-aside/<id>    {"name": "..."}: like /deleted/, but its directories only get another name, because
                   nobody else may have its records
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from server.topics.topic import Topic
from storage.files.paths import topic_id_text

TOPICS = "/topics/"
PLACED = "/placed/"
UNSETTLED = "/unsettled/"
DELETED = "/deleted/"
PUT_ASIDE = "/put-aside/"

NOT_KNOWN = ""
"""In place of the id of a partition's directory: none was found with its log."""


def topic_value(topic_id: uuid.UUID, partitions_count: int, overrides: Mapping[str, str]) -> str:
    """Returns the value of a topic in the cluster's store."""
    content: dict[str, Any] = {
        "id": topic_id_text(topic_id),
        "partitions": partitions_count,
        "configs": dict(overrides),
    }
    return as_json(content)


def placed_key(topic: Topic) -> str:
    """Returns the key of a topic's placement."""
    return PLACED + topic_id_text(topic.id)


def placed_json(name: str, holders: Sequence[str]) -> str:
    """Returns the value of a placement.

    Args:
        holders: the id of each partition's directory, or `NOT_KNOWN`.
    """
    # An index is shorter than an id: a topic may have 10,000 partitions.
    indexes: dict[str, int] = {}
    for holder in holders:
        if holder != NOT_KNOWN:
            indexes.setdefault(holder, len(indexes))
    partitions = [indexes.get(holder, -1) for holder in holders]
    return as_json({"name": name, "directories": list(indexes), "partitions": partitions})


def placement(value: str) -> tuple[str, list[str]]:
    """Returns the topic's name and the id of each partition's directory, or `NOT_KNOWN`."""
    content = json.loads(value)
    directories = content["directories"]
    holders = [directories[at] if at >= 0 else NOT_KNOWN for at in content["partitions"]]
    return content["name"], holders


def unsettled_key(topic: Topic, first: int) -> str:
    """Returns the key that says that the logs from `first` on may not survive a crash."""
    return f"{UNSETTLED}{topic_id_text(topic.id)}/{first}"


def topic_of_unsettled(key: str) -> str:
    """Returns the topic's id in a key of `unsettled_key`."""
    return key.removeprefix(UNSETTLED).partition("/")[0]


def first_unsettled(keys: Iterable[str]) -> dict[str, int]:
    """Returns, by topic id, the first partition from which on logs may be missing."""
    first: dict[str, int] = {}
    for key in keys:
        topic_id, _, number = key.removeprefix(UNSETTLED).partition("/")
        first[topic_id] = min(first.get(topic_id, int(number)), int(number))
    return first


def as_json(content: Mapping[str, Any]) -> str:
    """Returns a value of a store."""
    return json.dumps(content, separators=(",", ":"))
