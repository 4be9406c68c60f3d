"""Opens the logs of all topics at a start.

After a crash, opening a log recovers it, which reads the log and writes to the disk at the end. So each
directory that was not closed cleanly gets its own threads. Without recovery, threads would only compete
for the interpreter.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from server.metadata.store import Entry
from server.topics.computed_configs import TopicConfigs
from server.topics.names import parse_id
from server.topics.topic import OfflineLog, Topic
from storage.files.errors import StorageError
from storage.files.paths import topic_id_text
from storage.formats.log_config import LogConfig
from storage.formats.topic_partition import TopicPartition
from storage.log.directory import LogDirectory
from storage.log.log import PartitionLog
from storage.recovery.progress import RecoveryProgress

_log = logging.getLogger("server.topics.opening")

THREADS_MAX = 256
"""The most threads for all directories together."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """A topic in the store, and those of its logs that are open already, by partition."""

    topic: Topic
    first_unacknowledged: int | None
    """The creation of this partition and those after it was not acknowledged; None: all were."""
    first_unsettled: int | None
    """From this partition on, a crash may have removed logs that were never written to."""
    logs: dict[int, PartitionLog | OfflineLog] = field(default_factory=dict)


Job = tuple[_Plan, int]
"""A topic, and the number of the partition to open."""


class TopicOpening:
    """Opens all topics at one start; `open` runs in a worker thread."""

    __slots__ = (
        "_configs",
        "_directories",
        "_progress",
        "_threads",
        "unclean",
        "undecided",
        "unsettled",
    )

    def __init__(
        self,
        directories: Sequence[LogDirectory],
        defaults: LogConfig,
        *,
        threads_per_directory: int,
        progress: RecoveryProgress,
    ) -> None:
        # Constant after construction
        self._directories = {each.directory_id: each for each in directories}
        self._configs = TopicConfigs(defaults)
        self._threads = threads_per_directory
        self._progress = progress
        # State
        self.unclean: set[str] = set()
        """Ids of directories with a log that could not be opened."""
        self.undecided: set[str] = set()
        """Ids of topics whose creation seems incomplete, but one of their logs cannot be checked."""
        self.unsettled: dict[str, int] = {}
        """By topic id, the first partition from which on logs may not survive a crash."""

    def open(
        self,
        topics: Mapping[str, Entry],
        unacknowledged: Mapping[str, int],
        unsettled: Mapping[str, int],
    ) -> list[Topic]:
        """Open the logs of the topics; create those again whose creation was not acknowledged.

        A log that cannot be opened is offline with its reason. If not all logs of an unacknowledged
        creation can be created again, all of them stay planned: a topic must not end up with a part of
        its partitions.

        A log that was written to is never created again: its creation was acknowledged, and the
        metadata has lost that. Such a topic is opened as it is.

        Args:
            topics: the entries in the store, by topic name.
            unacknowledged: by topic id, the first partition whose creation was not acknowledged.
            unsettled: by topic id, the first partition whose log was not synced. Logs from there on
                that a crash has removed are created again, as nothing was ever written to them.
        """
        plans: list[_Plan] = []
        jobs: dict[str, list[Job]] = {}
        for name, entry in topics.items():
            content = json.loads(entry.value)
            topic_id = content["id"]
            plan = self._plan(name, content, unacknowledged.get(topic_id), unsettled.get(topic_id))
            plans.append(plan)
            for number, directory_id in enumerate(content["partitions"]):
                jobs.setdefault(directory_id, []).append((plan, number))
        self._progress.logs_to_open = sum(map(len, jobs.values()))
        self._open_all(jobs)
        return [_with_logs(plan) for plan in plans]

    def _plan(
        self,
        name: str,
        content: dict[str, Any],
        first_unacknowledged: int | None,
        first_unsettled: int | None,
    ) -> _Plan:
        topic_id = parse_id(content["id"])
        if first_unacknowledged is not None:
            first, holders = first_unacknowledged, content["partitions"]
            first_unacknowledged = self._clear_unacknowledged(name, topic_id, holders, first)
            if first_unacknowledged is not None or content["id"] not in self.undecided:
                first_unsettled = first if first_unsettled is None else min(first, first_unsettled)
        if first_unsettled is not None:
            self.unsettled[content["id"]] = first_unsettled
        topic = Topic(
            name=name,
            id=topic_id,
            config=self._configs.of(name, content["configs"]),
            overrides=content["configs"],
            partitions=(),
        )
        return _Plan(topic, first_unacknowledged, first_unsettled)

    def _clear_unacknowledged(
        self, name: str, topic_id: uuid.UUID, holders: Sequence[str], first: int
    ) -> int | None:
        """Remove the files of a creation that did not complete, unless they may hold records.

        Returns `first` if the logs from there on must be created again, None to open all logs.
        """
        try:
            used = self._used_partitions(name, topic_id, holders, first)
        except StorageError as error:
            _log.error("%s: cannot tell yet whether its creation completed: %s", name, error)
            self.undecided.add(topic_id_text(topic_id))
            return None
        if used:
            text = (
                "%s: its creation did not complete according to the metadata, but %s holds records:"
            )
            _log.error(text + " opening its logs as they are", name, TopicPartition(name, used[0]))
            return None
        what = f"partitions from {first} on" if first else "logs"
        _log.warning("%s: its creation did not complete, creating its %s again", name, what)
        self._remove_remains(name, topic_id, first)
        return first

    def _used_partitions(
        self, name: str, topic_id: uuid.UUID, holders: Sequence[str], first: int
    ) -> list[int]:
        """Returns the partitions from `first` on that were written to.

        Raises:
            StorageError: a directory with one of them is out of service.
        """
        for holder in set(holders[first:]):
            self._directory(holder)
        return [
            number
            for directory in self._directories.values()
            for number in directory.used_partitions(name, topic_id, first)
        ]

    def _remove_remains(self, name: str, topic_id: uuid.UUID, first: int) -> None:
        """Remove the files of a creation; a directory where that fails goes offline."""
        for directory in self._directories.values():
            try:
                if first:
                    directory.delete_partitions(name, topic_id, first)
                else:
                    directory.delete_topic(name, topic_id)
            except StorageError as error:
                _log.error("%s: could not remove the remains of its creation: %s", name, error)
                directory.go_offline(str(error))

    def _open_all(self, jobs: Mapping[str, Sequence[Job]]) -> None:
        """Open the logs of all directories; those to recover in parallel, with several threads each."""
        clean = [key for key in jobs if key not in self._unclean_directories]
        with ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="recovery") as executor:
            running: list[Future[None]] = []
            for directory_id in self._unclean_directories & jobs.keys():
                # The threads share one iterator, because some logs take much longer than others.
                rest = iter(jobs[directory_id])
                running += [
                    executor.submit(self._open_each, directory_id, rest)
                    for _ in range(min(self._threads, len(jobs[directory_id])))
                ]
            for directory_id in clean:
                self._open_each(directory_id, iter(jobs[directory_id]))
            for each in running:
                each.result()

    @property
    def _unclean_directories(self) -> set[str]:
        return {key for key, each in self._directories.items() if not each.was_clean}

    def _open_each(self, directory_id: str, jobs: Iterator[Job]) -> None:
        for plan, number in jobs:
            try:
                plan.logs[number] = _open(self._directory(directory_id), plan, number)
            except StorageError as error:
                partition = TopicPartition(plan.topic.name, number)
                _log.error("%s: offline: %s", partition, error)
                self.unclean.add(directory_id)
                plan.logs[number] = OfflineLog(topic_partition=partition, offline_reason=str(error))
            self._progress.opened()

    def _directory(self, directory_id: str) -> LogDirectory:
        directory = self._directories.get(directory_id)
        if directory is None:
            text = f"its log directory, {directory_id}, is offline or not among log.dirs"
            raise StorageError(text)
        return directory


def _open(directory: LogDirectory, plan: _Plan, number: int) -> PartitionLog:
    topic = plan.topic
    if plan.first_unacknowledged is not None and number >= plan.first_unacknowledged:
        (log,) = directory.create_logs(topic.name, topic.id, topic.config, [number])
        return log
    partition = TopicPartition(topic.name, number)
    if plan.first_unsettled is not None and number >= plan.first_unsettled:
        return directory.open_or_create_log(partition, topic.id, topic.config)
    return directory.open_log(partition, topic.id, topic.config)


def _with_logs(plan: _Plan) -> Topic:
    logs = [plan.logs[number] for number in range(len(plan.logs))]
    first = len(logs) if plan.first_unacknowledged is None else plan.first_unacknowledged
    if any(isinstance(log, OfflineLog) for log in logs[first:]):
        name = plan.topic.name
        _log.error("%s: undoing its creation", name)
        logs[first:] = [OfflineLog.planned(name, number) for number in range(first, len(logs))]
    return replace(plan.topic, partitions=tuple(logs))
