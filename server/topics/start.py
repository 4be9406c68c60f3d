"""The start of topics: what the stores say about them, and the progress while their logs are opened."""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from cleaner.rules.text import count_text
from server.metadata.store import Entry, MetadataStore
from server.runtime.executors import Executor
from server.runtime.tasks import awaited
from server.topics.keys import (
    DELETED,
    PLACED,
    PUT_ASIDE,
    TOPICS,
    UNSETTLED,
    first_unsettled,
    placement,
)
from server.topics.names import parse_id
from storage.recovery.progress import RecoveryProgress

R = TypeVar("R")
Entries = Sequence[Entry]

_log = logging.getLogger("server.topics.topics")

PROGRESS_SECONDS = 5.0
"""A start that takes longer logs its progress at this interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterTopic:
    """A topic in the cluster's store."""

    name: str
    id: uuid.UUID
    partitions_count: int
    overrides: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where the node's store has the logs of a topic."""

    name: str
    id: uuid.UUID
    holders: Sequence[str]
    """The id of each partition's directory, or `NOT_KNOWN`."""
    first_unsettled: int | None
    """From this partition on, a crash may have removed logs that were never written to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTopics:
    """What the stores say about topics at a start."""

    topics: Sequence[ClusterTopic]
    placed: Mapping[uuid.UUID, Placement]
    deleted: frozenset[uuid.UUID]
    """Topics whose deletion has begun, or that are being put aside."""
    unsettled_keys: Sequence[str]


async def read_topics(
    store: MetadataStore, node_store: MetadataStore, executor: Executor
) -> StoredTopics:
    """Returns what the stores say about topics.

    Args:
        executor: the thread that decodes the entries, as there may be very many.

    Raises:
        StorageError: a store cannot be read.
    """
    topics = (await store.range(TOPICS)).entries
    placed, unsettled, deleted, put_aside = [
        (await node_store.range(prefix)).entries
        for prefix in (PLACED, UNSETTLED, DELETED, PUT_ASIDE)
    ]
    return await executor.run(_decoded, topics, placed, unsettled, [*deleted, *put_aside])


def _decoded(
    topics: Entries, placed: Entries, unsettled: Entries, deleted: Entries
) -> StoredTopics:
    unsettled_keys = [entry.key for entry in unsettled]
    first = first_unsettled(unsettled_keys)
    placements = (
        _placement(entry.key.removeprefix(PLACED), entry.value, first) for entry in placed
    )
    return StoredTopics(
        topics=[
            _topic(entry.key.removeprefix(TOPICS), json.loads(entry.value)) for entry in topics
        ],
        placed={each.id: each for each in placements},
        deleted=frozenset(parse_id(entry.key.rpartition("/")[2]) for entry in deleted),
        unsettled_keys=unsettled_keys,
    )


def _topic(name: str, content: Mapping[str, Any]) -> ClusterTopic:
    return ClusterTopic(
        name=name,
        id=parse_id(content["id"]),
        partitions_count=content["partitions"],
        overrides=content["configs"],
    )


def _placement(topic_id: str, value: str, first: Mapping[str, int]) -> Placement:
    name, holders = placement(value)
    return Placement(
        name=name, id=parse_id(topic_id), holders=holders, first_unsettled=first.get(topic_id)
    )


async def with_progress(executor: Executor, work: Callable[[], R], progress: RecoveryProgress) -> R:
    """Run `work` in a thread and log the `progress` that it reports. Returns its result."""
    started = asyncio.get_running_loop().time()
    task = awaited(executor.run(work))
    while not (await asyncio.wait([task], timeout=PROGRESS_SECONDS))[0]:
        _log.info("recovering: %s", progress)
    if progress.logs_recovered_total:
        _log.info(
            "recovered %s in %.1f s: %s scanned, %s cut into %s",
            count_text(progress.logs_recovered_total, "log"),
            asyncio.get_running_loop().time() - started,
            count_text(progress.bytes_scanned_total, "byte"),
            count_text(progress.bytes_cut_total, "byte"),
            count_text(progress.files_cut_total, "file"),
        )
    return task.result()
