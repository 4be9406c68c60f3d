"""The metadata stores of a restored data directory, made of the entries of the snapshot."""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection, Mapping
from typing import NamedTuple

from replog.trigger import CompactionSettings
from server.admin.compaction_pauses import EVERYTHING
from server.admin.compaction_pauses import PREFIX as PAUSED
from server.erasure.erasure import PREFIX as ERASURES
from server.metadata.store import MetadataStore, Put
from server.topics.keys import DELETED, PLACED, PUT_ASIDE, TOPICS, UNSETTLED
from server.topics.stores import open_stores
from storage.files.files import FileSystem
from storage.snapshots.descriptor import SnapshotDescriptor

ENTRIES_MAX = 1_000
"""So many entries are written in one transaction."""


class Entries(NamedTuple):
    """What the two stores get, by key."""

    cluster: Mapping[str, str]
    node: Mapping[str, str]


def restored_entries(
    snapshot: SnapshotDescriptor, topics: Collection[str] | None = None
) -> Entries:
    """Returns the entries of a snapshot without those of the topics that are not restored.

    Args:
        topics: the names of those that are; None for all.
    """
    if topics is None:
        return Entries(snapshot.cluster, snapshot.node)
    ids = {
        json.loads(value)["id"]
        for key, value in snapshot.cluster.items()
        if key.startswith(TOPICS) and key.removeprefix(TOPICS) in topics
    }
    kept = {None, *ids}
    return Entries(
        {
            key: value
            for key, value in snapshot.cluster.items()
            if _topic_of_cluster_key(key, value) in kept
        },
        {key: value for key, value in snapshot.node.items() if _topic_of_node_key(key) in kept},
    )


def _topic_of_cluster_key(key: str, value: str) -> str | None:
    """Returns the id of the topic that an entry is about; None if it is about none."""
    if key.startswith(TOPICS):
        return str(json.loads(value)["id"])
    if key.startswith(ERASURES):
        return str(json.loads(value)["topic_id"])
    if key.startswith(PAUSED) and key != PAUSED + EVERYTHING:
        return key.removeprefix(PAUSED).partition("/")[0]
    return None


def _topic_of_node_key(key: str) -> str | None:
    for prefix in (PLACED, UNSETTLED, DELETED, PUT_ASIDE):
        if key.startswith(prefix):
            return key.removeprefix(prefix).partition("/")[0]
    return None


async def write_stores(
    files: FileSystem, directory: str, entries: Entries, *, term_min: int
) -> None:
    """Make the stores of a new metadata directory, with these entries, durably.

    Args:
        term_min: the least term in which the cluster's store leads.

    Raises:
        StorageError: the disk failed.
    """
    stores = await open_stores(files, directory, CompactionSettings(), term_min=term_min)
    try:
        await _fill(stores.cluster, entries.cluster)
        await _fill(stores.node, entries.node)
    finally:
        await stores.close()


async def _fill(store: MetadataStore, entries: Mapping[str, str]) -> None:
    puts = (Put(key=key, value=value) for key, value in sorted(entries.items()))
    while portion := list(itertools.islice(puts, ENTRIES_MAX)):
        await store.txn((), portion)
