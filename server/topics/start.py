"""The start of topics: what the store says about them, and the progress while their logs are opened."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from cleaner.rules.text import count_text
from server.metadata.store import Entry, MetadataStore
from server.runtime.executors import Executor
from server.runtime.tasks import awaited
from server.topics.keys import CREATING, TOPICS, UNSETTLED
from storage.recovery.progress import RecoveryProgress

R = TypeVar("R")

_log = logging.getLogger("server.topics.topics")

PROGRESS_SECONDS = 5.0
"""A start that takes longer logs its progress at this interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTopics:
    """What the store says about topics at a start."""

    topics: Mapping[str, Entry]
    """The entries of topics, by name."""
    unacknowledged: Mapping[str, int]
    """By topic id, the first partition whose creation was not acknowledged."""
    unsettled: Sequence[str]
    """The keys of logs that may not have survived a crash."""


async def read_topics(store: MetadataStore) -> StoredTopics:
    """Returns what the store says about topics.

    Raises:
        StorageError: the store cannot be read.
    """
    topics = (await store.range(TOPICS)).entries
    creating = (await store.range(CREATING)).entries
    unsettled = (await store.range(UNSETTLED)).entries
    return StoredTopics(
        topics={entry.key.removeprefix(TOPICS): entry for entry in topics},
        unacknowledged={
            entry.key.removeprefix(CREATING): int(entry.value or 0) for entry in creating
        },
        unsettled=[entry.key for entry in unsettled],
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
