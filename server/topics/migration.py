"""Moves the facts of one node from the cluster's store to the node's: earlier releases had one store.

    the store of an earlier release                       now
    /topics/<name>      "partitions": [directory id, ...] cluster: their number; node: /placed/<id>
    /unsettled/<id>/<n>, /deleted/<id>                    node, unchanged
    /creating/<id>      <n>: the addition of partitions   node: they are placed and unsettled, but the
                        from <n> on was not acknowledged  cluster does not count them
                        without a number: of the topic    node: unsettled from 0 on
    /broker_configs/<node id>                             node, unchanged

First the node's store is written, then one transaction changes the cluster's. A crash between them
leaves the old store, so the next start does both again.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from typing import Any

from cleaner.rules.text import count_text
from server.metadata.store import Delete, Entry, MetadataStore, Put
from server.topics.keys import DELETED, PLACED, TOPICS, UNSETTLED, as_json, placed_json

_log = logging.getLogger("server.topics.migration")

CREATING = "/creating/"


async def has_counted_topics(store: MetadataStore) -> bool:
    """Returns whether the cluster's store has topics whose logs the node's store must know."""
    topics = (await store.range(TOPICS)).entries
    return bool(topics) and not _is_old(json.loads(topics[0].value))


async def move_node_facts(
    store: MetadataStore, node_store: MetadataStore, *, node_config_key: str | None
) -> None:
    """Move the facts of the node, unless that was done.

    Args:
        node_config_key: the key of the properties that are set on this node, if there may be some.

    Raises:
        StorageError: a store failed; the next start tries again.
    """
    topics = (await store.range(TOPICS)).entries
    moved = [
        *(await store.range(CREATING)).entries,
        *(await store.range(UNSETTLED)).entries,
        *(await store.range(DELETED)).entries,
    ]
    config = await store.get(node_config_key) if node_config_key is not None else None
    if config is not None:
        moved.append(config)
    # One transaction changes all topics, so the first one tells.
    if not moved and not any(_is_old(json.loads(entry.value)) for entry in topics[:1]):
        return
    old = [entry for entry in topics if _is_old(json.loads(entry.value))]
    await _write_node_facts(node_store, old, moved)
    await _remove_node_facts(store, old, moved)
    _log.info(
        "moved where the logs of %s are to the node's metadata", count_text(len(old), "topic")
    )


def _is_old(content: dict[str, Any]) -> bool:
    return isinstance(content["partitions"], list)


async def _write_node_facts(
    node_store: MetadataStore, topics: Iterable[Entry], moved: Iterable[Entry]
) -> None:
    facts: dict[str, str] = {}
    for topic in topics:
        name, content = topic.key.removeprefix(TOPICS), json.loads(topic.value)
        facts[PLACED + content["id"]] = placed_json(name, content["partitions"])
    for entry in moved:
        if entry.key.startswith(CREATING):
            first = _first_unacknowledged(entry)
            facts[f"{UNSETTLED}{entry.key.removeprefix(CREATING)}/{first}"] = ""
        else:
            facts[entry.key] = entry.value
    # What an attempt before this one has written may be older than the cluster's store.
    there = (await node_store.range("/")).entries
    outdated = [Delete(key=entry.key) for entry in there if entry.key not in facts]
    puts = [Put(key=key, value=value) for key, value in facts.items()]
    await node_store.txn((), [*outdated, *puts])


async def _remove_node_facts(
    store: MetadataStore, topics: Iterable[Entry], moved: Iterable[Entry]
) -> None:
    counts = {
        entry.key.removeprefix(CREATING): _first_unacknowledged(entry)
        for entry in moved
        if entry.key.startswith(CREATING)
    }
    operations: list[Put | Delete] = []
    for topic in topics:
        content = json.loads(topic.value)
        # A topic whose own creation was not acknowledged has all of its partitions or is removed.
        count = counts.get(content["id"]) or len(content["partitions"])
        value = as_json(content | {"partitions": count})
        operations.append(Put(key=topic.key, value=value))
    operations += [Delete(key=entry.key) for entry in moved]
    await store.txn((), operations)


def _first_unacknowledged(entry: Entry) -> int:
    return int(entry.value or 0)
