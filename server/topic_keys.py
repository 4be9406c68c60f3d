"""What the metadata store holds of topics, and under which keys.

/topics/<name>     {"id": "...", "partitions": ["<directory id>", ...], "configs": {...}}
/creating/<id>     its logs are not all there yet: nobody was told of it; with a number, of its
                   partitions from that one on
/deleted/<id>      {"name": "..."}: its files are still to be removed
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from server.topic import Topic
from storage.log_directory import LogDirectory
from storage.paths import topic_id_text

TOPICS = "/topics/"
CREATING = "/creating/"
DELETED = "/deleted/"


def topic_json(topic: Topic, directories: Sequence[LogDirectory]) -> str:
    """A new topic as the store holds it: its logs are in these directories, by partition."""
    content: dict[str, Any] = {
        "id": topic_id_text(topic.id),
        "partitions": [directory.directory_id for directory in directories],
        "configs": dict(topic.overrides),
    }
    return as_json(content)


def as_json(content: Mapping[str, Any]) -> str:
    """A value of the store."""
    return json.dumps(content, separators=(",", ":"))
