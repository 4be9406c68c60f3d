"""The metadata of an earlier release, which had the node's facts in the cluster's store."""

from __future__ import annotations

import json
from collections.abc import Mapping

from replog.trigger import CompactionSettings
from server.metadata.log import MetadataLog, read_machine
from server.topics.keys import PLACED, TOPICS, placement
from storage.files.files import FileSystem

CLUSTER, NODE = "metadata", "node"


def make_earlier(files: FileSystem, directory: str, marks: Mapping[str, str] = {}) -> None:
    """Turn the stores in a metadata directory into the one store of an earlier release.

    Args:
        marks: further keys of that store, with their values.
    """
    cluster, node = (
        {
            key: entry.value
            for key, entry in read_machine(files, f"{directory}/{name}").entries.items()
        }
        for name in (CLUSTER, NODE)
    )
    content = {**cluster, **node, **marks}
    for key in [key for key in content if key.startswith(PLACED)]:
        name, holders = placement(content.pop(key))
        topic = json.loads(content[TOPICS + name])
        content[TOPICS + name] = json.dumps(topic | {"partitions": holders})
    for name in (CLUSTER, NODE):
        files.remove_tree(f"{directory}/{name}")
    store = MetadataLog(files, f"{directory}/{CLUSTER}", CompactionSettings())
    store.recover()
    for key, value in content.items():
        store.append([["put", key, value, 0]])
    store.close()
    files.sync_directory(directory)
