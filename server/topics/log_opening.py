"""Opens the logs of all topics at a start.

After a crash, opening a log recovers it, which reads the log and writes to the disk at the end. So each
directory that was not closed cleanly gets its own threads. Without recovery, threads would only compete
for the interpreter.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from server.topics.computed_configs import TopicConfigs
from server.topics.keys import NOT_KNOWN
from server.topics.reconciliation import TopicToOpen
from server.topics.topic import OfflineLog, Topic
from storage.files.errors import StorageError
from storage.formats.log_config import LogConfig
from storage.formats.topic_partition import TopicPartition
from storage.log.directory import LogDirectory
from storage.log.log import PartitionLog
from storage.recovery.progress import RecoveryProgress

_log = logging.getLogger("server.topics.log_opening")

THREADS_MAX = 256
"""The most threads for all directories together."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """A topic to open, and those of its logs that are open already, by partition."""

    topic: Topic
    first_unsettled: int | None
    """From this partition on, a crash may have removed logs that were never written to."""
    logs: dict[int, PartitionLog | OfflineLog] = field(default_factory=dict)


Job = tuple[_Plan, int]
"""A topic, and the number of the partition to open."""


class TopicOpening:
    """Opens all topics at one start; `open` runs in a worker thread."""

    __slots__ = ("_configs", "_directories", "_progress", "_threads", "unclean")

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

    def open(self, topics: Sequence[TopicToOpen]) -> list[Topic]:
        """Open the logs of the topics. Returns the topics in the same order.

        A log that cannot be opened is offline with its reason. An unsettled log that a crash has removed
        is created again, as nothing was ever written to it; any other missing log is not.
        """
        plans: list[_Plan] = []
        jobs: dict[str, list[Job]] = {}
        for topic in topics:
            plan = self._plan(topic)
            plans.append(plan)
            for number, holder in enumerate(topic.holders):
                jobs.setdefault(holder, []).append((plan, number))
        self._progress.logs_to_open = sum(map(len, jobs.values()))
        self._open_all(jobs)
        return [_with_logs(plan) for plan in plans]

    def _plan(self, topic: TopicToOpen) -> _Plan:
        planned = Topic(
            name=topic.name,
            id=topic.id,
            config=self._configs.of(topic.name, topic.overrides),
            overrides=topic.overrides,
            partitions=(),
        )
        return _Plan(planned, topic.first_unsettled)

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
        if directory_id == NOT_KNOWN:
            raise StorageError("none of the log directories in service has its files")
        if directory is None:
            text = f"its log directory, {directory_id}, is offline or not among log.dirs"
            raise StorageError(text)
        return directory


def _open(directory: LogDirectory, plan: _Plan, number: int) -> PartitionLog:
    topic = plan.topic
    partition = TopicPartition(topic.name, number)
    if plan.first_unsettled is not None and number >= plan.first_unsettled:
        return directory.open_or_create_log(partition, topic.id, topic.config)
    return directory.open_log(partition, topic.id, topic.config)


def _with_logs(plan: _Plan) -> Topic:
    logs = tuple(plan.logs[number] for number in range(len(plan.logs)))
    return replace(plan.topic, partitions=logs)
