"""The keys and values of topics in the metadata store.

/topics/<name>     {"id": "...", "partitions": ["<directory id>", ...], "configs": {...}}
/creating/<id>     <n>: the addition of its partitions from <n> on was not acknowledged, as not all
                   their logs exist yet. Without a number, which earlier releases wrote: its creation
/unsettled/<id>/<n>  its logs from partition <n> on may have no files yet, and these were never synced:
                   if nothing was written to one, it may be missing at a start, and is created
/deleted/<id>      {"name": "..."}: its files are still to be removed
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from server.topics.topic import Topic
from storage.files.paths import topic_id_text
from storage.log.directory import LogDirectory

TOPICS = "/topics/"
CREATING = "/creating/"
UNSETTLED = "/unsettled/"
DELETED = "/deleted/"


def topic_json(topic: Topic, directories: Sequence[LogDirectory]) -> str:
    """Returns the value of a new topic whose logs are in these directories, by partition."""
    content: dict[str, Any] = {
        "id": topic_id_text(topic.id),
        "partitions": [directory.directory_id for directory in directories],
        "configs": dict(topic.overrides),
    }
    return as_json(content)


def unsettled_key(topic: Topic, first: int) -> str:
    """Returns the key that says that the logs from `first` on may not survive a crash."""
    return f"{UNSETTLED}{topic_id_text(topic.id)}/{first}"


def first_unsettled(keys: Iterable[str]) -> dict[str, int]:
    """Returns, by topic id, the first partition from which on logs may be missing."""
    first: dict[str, int] = {}
    for key in keys:
        topic_id, _, number = key.removeprefix(UNSETTLED).partition("/")
        first[topic_id] = min(first.get(topic_id, int(number)), int(number))
    return first


def as_json(content: Mapping[str, Any]) -> str:
    """Returns a value of the store."""
    return json.dumps(content, separators=(",", ":"))
