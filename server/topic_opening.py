"""Opens the logs of all topics at a start.

After a crash a log is recovered as it is opened: it is read, and written down at the end. So a
directory that was not closed in order has some threads to itself. Where nothing is to be recovered,
threads would only take the interpreter from each other.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from server.metadata_store import Entry
from server.topic import OfflineLog, Topic
from server.topic_configs import TopicConfigs
from server.topic_names import parse_id
from storage.errors import StorageError
from storage.log import PartitionLog
from storage.log_config import LogConfig
from storage.log_directory import LogDirectory
from storage.paths import topic_id_text
from storage.recovery_progress import RecoveryProgress
from storage.topic_partition import TopicPartition

_log = logging.getLogger("server.topic_opening")

THREADS_MAX = 256
"""Of all directories together."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """A topic that the store knows, and its logs by partition as far as they are open."""

    topic: Topic
    first_unborn: int | None
    """From this partition on nobody was told of it; None: of all of it somebody was."""
    first_unsettled: int | None
    """From this partition on a crash may have taken logs that were never written to."""
    logs: dict[int, PartitionLog | OfflineLog] = field(default_factory=dict)


Job = tuple[_Plan, int]
"""A topic, and the number of a partition of it."""


class TopicOpening:
    """One start's opening of all topics; `open` runs in a worker thread."""

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
        """Ids of topics whose creation looks cut short, but a log of theirs cannot be looked at."""
        self.unsettled: dict[str, int] = {}
        """From which partition on the logs of topics are not known to survive a crash, by their ids."""

    def open(
        self,
        topics: Mapping[str, Entry],
        unborn: Mapping[str, int],
        unsettled: Mapping[str, int],
    ) -> list[Topic]:
        """Open the logs of the topics, by name; those that nobody was told of are made anew.

        A log that cannot be opened is offline with its reason. Where not all logs could be made
        anew, all of them stay unborn: a part of what was asked for must not be all for ever.

        A log that was written to is never made anew: its creation was acknowledged, and the metadata
        have lost that. Such a topic is opened as it is.

        Args:
            unborn: from which partition on nobody was told of a topic, by its id.
            unsettled: from which one on its logs were not synced; those that a crash has taken
                are made anew, because nothing was ever written to them.
        """
        plans: list[_Plan] = []
        jobs: dict[str, list[Job]] = {}
        for name, entry in topics.items():
            content = json.loads(entry.value)
            topic_id = content["id"]
            plan = self._plan(name, content, unborn.get(topic_id), unsettled.get(topic_id))
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
        first_unborn: int | None,
        first_unsettled: int | None,
    ) -> _Plan:
        topic_id = parse_id(content["id"])
        if first_unborn is not None:
            first, holders = first_unborn, content["partitions"]
            first_unborn = self._clear_unborn(name, topic_id, holders, first)
            if first_unborn is not None or content["id"] not in self.undecided:
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
        return _Plan(topic, first_unborn, first_unsettled)

    def _clear_unborn(
        self, name: str, topic_id: uuid.UUID, holders: Sequence[str], first: int
    ) -> int | None:
        """Remove what a creation that was cut short has left, unless records may be among it.

        Returns `first` if the logs from there on are to be made anew, None if all are to be opened.
        """
        try:
            used = self._used_partitions(name, topic_id, holders, first)
        except StorageError as error:
            _log.error("%s: whether its creation was cut short is not known yet: %s", name, error)
            self.undecided.add(topic_id_text(topic_id))
            return None
        if used:
            text = "%s: the metadata say that its creation was cut short, but %s holds records:"
            _log.error(text + " opening its logs as they are", name, TopicPartition(name, used[0]))
            return None
        what = f"partitions from {first} on" if first else "logs"
        _log.warning("%s: its creation was cut short, making its %s anew", name, what)
        self._remove_remains(name, topic_id, first)
        return first

    def _used_partitions(
        self, name: str, topic_id: uuid.UUID, holders: Sequence[str], first: int
    ) -> list[int]:
        """The partitions from `first` on that were written to.

        Raises:
            StorageError: a directory that has one of them is out of service.
        """
        for holder in set(holders[first:]):
            self._directory(holder)
        return [
            number
            for directory in self._directories.values()
            for number in directory.used_partitions(name, topic_id, first)
        ]

    def _remove_remains(self, name: str, topic_id: uuid.UUID, first: int) -> None:
        """Remove what a creation has left; where that fails, its logs cannot be made either."""
        for directory in self._directories.values():
            try:
                if first:
                    directory.delete_partitions(name, topic_id, first)
                else:
                    directory.delete_topic(name, topic_id)
            except StorageError as error:
                _log.error("%s: the remains of its creation stay: %s", name, error)
                directory.go_offline(str(error))

    def _open_all(self, jobs: Mapping[str, Sequence[Job]]) -> None:
        """Open the logs of all directories at once, several of each that must be recovered."""
        in_order = [key for key in jobs if key not in self._unclean_directories]
        with ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="recovery") as executor:
            running: list[Future[None]] = []
            for directory_id in self._unclean_directories & jobs.keys():
                # The threads share one iterator, because some logs take much longer than others.
                rest = iter(jobs[directory_id])
                running += [
                    executor.submit(self._open_each, directory_id, rest)
                    for _ in range(min(self._threads, len(jobs[directory_id])))
                ]
            for directory_id in in_order:
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
    if plan.first_unborn is not None and number >= plan.first_unborn:
        (log,) = directory.create_logs(topic.name, topic.id, topic.config, [number])
        return log
    partition = TopicPartition(topic.name, number)
    if plan.first_unsettled is not None and number >= plan.first_unsettled:
        return directory.open_or_create_log(partition, topic.id, topic.config)
    return directory.open_log(partition, topic.id, topic.config)


def _with_logs(plan: _Plan) -> Topic:
    logs = [plan.logs[number] for number in range(len(plan.logs))]
    first = len(logs) if plan.first_unborn is None else plan.first_unborn
    if any(isinstance(log, OfflineLog) for log in logs[first:]):
        name = plan.topic.name
        _log.error("%s: its creation is taken back", name)
        logs[first:] = [OfflineLog.unborn(name, number) for number in range(first, len(logs))]
    return replace(plan.topic, partitions=tuple(logs))
