"""What the metadata store holds of topics, and under which keys.

/topics/<name>     {"id": "...", "partitions": ["<directory id>", ...], "configs": {...}}
/creating/<id>     its logs are not all there yet: nobody was told of it; with a number, of its
                   partitions from that one on
/unsettled/<id>/<n>  its logs from partition <n> on were never synced: one that was never written to
                   may be missing after a crash, and is made anew
/deleted/<id>      {"name": "..."}: its files are still to be removed
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from server.topic import Topic
from storage.log_directory import LogDirectory
from storage.paths import topic_id_text

TOPICS = "/topics/"
CREATING = "/creating/"
UNSETTLED = "/unsettled/"
DELETED = "/deleted/"


def topic_json(topic: Topic, directories: Sequence[LogDirectory]) -> str:
    """A new topic as the store holds it: its logs are in these directories, by partition."""
    content: dict[str, Any] = {
        "id": topic_id_text(topic.id),
        "partitions": [directory.directory_id for directory in directories],
        "configs": dict(topic.overrides),
    }
    return as_json(content)


def unsettled_key(topic: Topic, first: int) -> str:
    """Under which the store says that the logs from `first` on may not survive a crash."""
    return f"{UNSETTLED}{topic_id_text(topic.id)}/{first}"


def first_unsettled(keys: Iterable[str]) -> dict[str, int]:
    """From which partition on logs may be missing, by the ids of topics."""
    first: dict[str, int] = {}
    for key in keys:
        topic_id, _, number = key.removeprefix(UNSETTLED).partition("/")
        first[topic_id] = min(first.get(topic_id, int(number)), int(number))
    return first


def as_json(content: Mapping[str, Any]) -> str:
    """A value of the store."""
    return json.dumps(content, separators=(",", ":"))
