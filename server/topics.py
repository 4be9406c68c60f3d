"""The topics of the broker: created, deleted and opened; the metadata store says which there are.

The store goes first, the files follow. A crash between the two is healed at the next start: the logs of
a topic that was being created, or of partitions that were being added, are made anew, those of a
deleted topic are removed. A log that should be there and is not takes its partition offline, and a
directory that the store knows nothing of is left alone: nothing is ever deleted, or begun anew,
because of a fact that is missing.
"""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from cleaner.text import count_text
from protocol.error_codes import ErrorCode
from server.metadata_store import Compare, Delete, Entry, MetadataStore, Put, note_if_there_is_space
from server.tasks import awaited
from server.topic import (
    DEFAULT,
    INTERNAL_TOPICS,
    OfflineLog,
    Topic,
    TopicDefaults,
    TopicRefused,
)
from server.topic_configs import TopicConfigs
from server.topic_creation import check_creation, fault_of_growth
from server.topic_deletion import TopicDeletion
from server.topic_files import close_logs, create_logs, spread
from server.topic_growth import TopicGrowth
from server.topic_keys import CREATING, TOPICS, as_json, topic_json
from server.topic_names import new_topic_id
from server.topic_opening import TopicOpening
from storage.config_property import ConfigError
from storage.errors import NoSpace, StorageError
from storage.files import FileSystem
from storage.log import PartitionLog
from storage.log_config import LogConfig
from storage.log_directory import LogDirectory
from storage.paths import topic_id_text
from storage.recovery_progress import RecoveryProgress

_log = logging.getLogger("server.topics")

PROGRESS_SECONDS = 5.0
"""A start that takes longer says now and then how far it is."""


class Topics:
    """The sole owner of which topics exist. Lives on the event loop; disk work runs in threads."""

    __slots__ = (
        "_by_id", "_by_name", "_defaults", "_deletion", "_directories", "_growth", "_lock",
        "_new_id", "_on_removed", "_progress", "_recovery_threads", "_store", "_unclean", "revision",
    )  # fmt: skip

    def __init__(
        self,
        store: MetadataStore,
        directories: Sequence[LogDirectory],
        *,
        files: FileSystem,
        defaults: TopicDefaults,
        on_removed: Callable[[PartitionLog], None] = lambda _: None,
        new_id: Callable[[], uuid.UUID] = new_topic_id,
        recovery_threads: int = 1,
        progress: RecoveryProgress | None = None,
        has_all_directories: bool = True,
    ) -> None:
        """Begin with no topic; `open` finds those that there are.

        Args:
            on_removed: told of every log that is not served any more, before its files go.
            recovery_threads: so many logs of a directory are recovered at once.
            progress: told how far the start is; the directories should tell the same one.
            has_all_directories: whether no directory of `log.dirs` was left out; else what is
                deleted may have files there, so a later start goes on with it.
        """
        # Constant after construction
        self._store = store
        self._directories = directories
        self._on_removed = on_removed
        self._new_id = new_id
        self._recovery_threads = recovery_threads
        self._progress = progress if progress is not None else RecoveryProgress()
        self._deletion = TopicDeletion(
            store, directories, files=files, has_all_directories=has_all_directories
        )
        self._growth = TopicGrowth(store, directories, has_all_directories=has_all_directories)
        # Orders creations and deletions, so that what was checked stays true until it is written.
        self._lock = asyncio.Lock()
        # State
        self.revision = 0
        """Another one whenever a topic comes, goes or changes; of this run."""
        self._defaults = defaults
        # What the store says, with the logs open.
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[uuid.UUID, Topic] = {}
        # Ids of directories with a log that could not be opened.
        self._unclean: set[str] = set()

    # Reading.

    def get(self, name: str) -> Topic | None:
        return self._by_name.get(name)

    def by_id(self, topic_id: uuid.UUID) -> Topic | None:
        return self._by_id.get(topic_id)

    def all(self) -> list[Topic]:
        """All topics in the order of their names. Any thread."""
        # Copied in one step of the interpreter, while the loop's thread adds and deletes.
        topics = list(self._by_name.values())
        topics.sort(key=lambda topic: topic.name)
        return topics

    def __len__(self) -> int:
        return len(self._by_name)

    def logs(self) -> list[PartitionLog]:
        """Every log that could be opened. Any thread."""
        return [log for topic in tuple(self._by_name.values()) for log in topic.logs()]

    # Starting and stopping.

    async def open(self) -> None:
        """Open the log of every partition that the store knows; finish deletions.

        A log that cannot be opened is offline with its reason; the others are served.

        Raises:
            StorageError: the store cannot be read.
        """
        entries = (await self._store.range(TOPICS)).entries
        known = {entry.key.removeprefix(TOPICS): entry for entry in entries}
        creating = (await self._store.range(CREATING)).entries
        unborn = {entry.key.removeprefix(CREATING): int(entry.value or 0) for entry in creating}
        topics, undecided = await self._open_all(known, unborn)
        undone = {CREATING + topic_id for topic_id in undecided}
        for topic in topics:
            if not topic.is_unborn:
                told = replace(topic, partitions=topic.born)
                self._publish(told)
            if len(topic.born) < len(topic.partitions):
                undone.add(CREATING + topic_id_text(topic.id))
                await self._take_back(topic)
        done = [Delete(key=entry.key) for entry in creating if entry.key not in undone]
        await note_if_there_is_space(self._store, done)
        await self._deletion.resume()

    async def _take_back(self, topic: Topic) -> None:
        """Undo the creation of what nobody was told of, or leave it to the next start."""
        try:
            if topic.is_unborn:
                await self._deletion.mark(topic)
            else:
                await self._growth.undo(replace(topic, partitions=topic.born))
        except NoSpace as error:
            _log.warning("%s: its creation is taken back at the next start: %s", topic.name, error)

    async def _open_all(
        self, known: Mapping[str, Entry], unborn: Mapping[str, int]
    ) -> tuple[list[Topic], set[str]]:
        """Open all logs in threads, and say now and then how far that is.

        Returns the topics, and the ids of those whose creation the next start has to look at again.
        """
        started, progress = asyncio.get_running_loop().time(), self._progress
        opening = TopicOpening(
            self._directories,
            self._defaults.config,
            threads_per_directory=self._recovery_threads,
            progress=progress,
        )
        work = awaited(asyncio.to_thread(opening.open, known, unborn))
        while not (await asyncio.wait([work], timeout=PROGRESS_SECONDS))[0]:
            _log.info("recovering: %s", progress)
        self._unclean = opening.unclean
        if progress.logs_recovered_total:
            _log.info(
                "recovered %s in %.1f s: %s scanned, %s cut into %s",
                count_text(progress.logs_recovered_total, "log"),
                asyncio.get_running_loop().time() - started,
                count_text(progress.bytes_scanned_total, "byte"),
                count_text(progress.bytes_cut_total, "byte"),
                count_text(progress.files_cut_total, "file"),
            )
        return work.result(), opening.undecided

    async def close(self) -> set[str]:
        """Wait for removals under way, then close every log.

        Returns the ids of the directories of which not all is in order: the next start has to
        recover their logs, so nobody may call their stop a clean one.
        """
        await self._deletion.finish()
        return self._unclean | await asyncio.to_thread(close_logs, self.logs())

    # Creating.

    async def create(
        self,
        name: str,
        *,
        partitions_count: int = DEFAULT,
        replication_factor: int = DEFAULT,
        overrides: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> Topic | TopicRefused:
        """Create a topic; durable when this returns.

        Args:
            validate_only: check everything and change nothing; the topic returned has no logs.
        """
        async with self._lock:
            checked = check_creation(
                name,
                partitions_count,
                replication_factor,
                overrides or {},
                existing=self._by_name,
                defaults=self._defaults,
            )
            if isinstance(checked, TopicRefused):
                return checked
            count, config = checked
            topic = Topic(
                name=name,
                id=self._new_id(),
                config=config,
                overrides=dict(overrides or {}),
                partitions=tuple(OfflineLog.unborn(name, number) for number in range(count)),
            )
            return topic if validate_only else await self._create(topic)

    async def create_if_absent(self, name: str) -> Topic | TopicRefused:
        """The topic, created with the defaults if there is none of this name."""
        if name in INTERNAL_TOPICS and name not in self._by_name:
            return TopicRefused(
                error_code=ErrorCode.INVALID_TOPIC_EXCEPTION,
                message=f"{name} is an internal topic and is not created on demand",
            )
        created = await self.create(name)
        return self._by_name.get(name) or created

    async def _create(self, planned: Topic) -> Topic | TopicRefused:
        directories = spread(self._directories, len(planned.partitions))
        if not directories:
            return TopicRefused.by_disk("all log directories are offline")
        result = await self._store.txn(
            [Compare(key=TOPICS + planned.name, mod_revision=0)],
            [
                Put(key=TOPICS + planned.name, value=topic_json(planned, directories)),
                Put(key=CREATING + topic_id_text(planned.id), value=""),
            ],
        )
        if not result.succeeded:
            return TopicRefused(
                error_code=ErrorCode.TOPIC_ALREADY_EXISTS,
                message=f"Topic '{planned.name}' already exists.",
            )
        try:
            topic = await asyncio.to_thread(create_logs, planned, directories)
            await self._store.txn((), [Delete(key=CREATING + topic_id_text(topic.id))])
        except StorageError as error:
            return await self._undo_creation(planned, error)
        self._publish(topic)
        count = len(topic.partitions)
        _log.info("%s: created with %s", topic.name, count_text(count, "partition"))
        return topic

    async def _undo_creation(self, planned: Topic, error: StorageError) -> TopicRefused:
        """Take back a topic whose logs could not all be created."""
        _log.error("%s: cannot be created: %s", planned.name, error)
        await self._deletion.mark(planned)
        self._deletion.remove_later(planned.name, planned.id)
        return TopicRefused.by_disk(str(error))

    # Adding partitions.

    async def add_partitions(
        self, name: str, count: int, *, validate_only: bool = False
    ) -> Topic | TopicRefused:
        """Have a topic have `count` partitions, more than it has; durable when this returns.

        Args:
            validate_only: check everything and change nothing; new partitions have no logs.
        """
        async with self._lock:
            topic = self._by_name.get(name)
            if topic is None:
                return TopicRefused.unknown(name)
            refusal = fault_of_growth(topic, count, self._defaults.partitions_max)
            if refusal is not None:
                return refusal
            new = range(len(topic.partitions), count)
            unborn = tuple(OfflineLog.unborn(name, number) for number in new)
            planned = replace(topic, partitions=topic.partitions + unborn)
            grown = planned if validate_only else await self._growth.grow(topic, planned)
            if isinstance(grown, Topic) and not validate_only:
                self._publish(grown)
            return grown

    # Changing.

    async def alter(
        self,
        name: str,
        change: Callable[[Mapping[str, str], LogConfig], Mapping[str, str]],
        *,
        validate_only: bool = False,
    ) -> Topic | TopicRefused:
        """Change what a topic overrides; durable, and followed by its logs, when this returns.

        Args:
            change: makes the new overrides from the old ones and the broker's defaults; it may
                raise ConfigError.
            validate_only: check everything and change nothing.
        """
        async with self._lock:
            topic = self._by_name.get(name)
            if topic is None:
                return TopicRefused.unknown(name)
            try:
                overrides = change(topic.overrides, self._defaults.config)
                config = LogConfig.from_overrides(overrides, self._defaults.config)
            except ConfigError as error:
                return TopicRefused(error_code=ErrorCode.INVALID_CONFIG, message=str(error))
            altered = replace(topic, overrides=dict(overrides), config=config)
            if validate_only or altered.overrides == topic.overrides:
                return altered
            return await self._alter(altered)

    async def _alter(self, altered: Topic) -> Topic | TopicRefused:
        key = TOPICS + altered.name
        entry = await self._store.get(key)
        assert entry is not None, "only this class creates and deletes topics"
        content = json.loads(entry.value) | {"configs": altered.overrides}
        result = await self._store.txn(
            [Compare(key=key, mod_revision=entry.mod_revision)],
            [Put(key=key, value=as_json(content))],
        )
        if not result.succeeded:
            return TopicRefused(
                error_code=ErrorCode.UNKNOWN_SERVER_ERROR,
                message=f"The configuration of '{altered.name}' was changed at the same time.",
            )
        # Nothing goes any more by the configuration from before, once this is answered.
        await asyncio.to_thread(_settle, self._use(altered))
        _log.info("%s: configured with %s", altered.name, altered.overrides)
        return altered

    def check_defaults(self, config: LogConfig) -> None:
        """Say whether all topics can have these defaults.

        Raises:
            ConfigError: what a topic overrides contradicts them.
        """
        before, after = TopicConfigs(self._defaults.config), TopicConfigs(config)
        for topic in self._by_name.values():
            fault = after.fault_of(topic.overrides)
            # What was left out before still is.
            if fault is not None and before.fault_of(topic.overrides) is None:
                raise ConfigError(f"topic {topic.name}: {fault}")

    async def follow_defaults(self, config: LogConfig) -> None:
        """Use other defaults, for topics to come and for what those there are leave to the broker."""
        async with self._lock:
            if config == self._defaults.config:
                return
            self._defaults = replace(self._defaults, config=config)
            configs = TopicConfigs(config)
            followed: list[PartitionLog] = []
            for topic in self.all():
                its_config = configs.of(topic.name, topic.overrides)
                if its_config != topic.config:
                    followed += self._use(replace(topic, config=its_config))
            # Nothing goes any more by the configuration from before, once this is answered.
            await asyncio.to_thread(_settle, followed)

    def _use(self, altered: Topic) -> list[PartitionLog]:
        """Have a topic's logs follow its configuration."""
        self._publish(altered)
        logs = altered.logs()
        for log in logs:
            log.update_config(altered.config)
        return logs

    # Deleting.

    async def delete(self, topic: Topic) -> TopicRefused | None:
        """Delete a topic; None when it is durably gone. Its files are removed in the background."""
        async with self._lock:
            if self._by_id.get(topic.id) is None:
                return TopicRefused.unknown(topic.name)
            await self._deletion.mark(topic)
            del self._by_name[topic.name], self._by_id[topic.id]
            self.revision += 1
            for log in topic.logs():
                log.retire()
                self._on_removed(log)
            self._deletion.remove_later(topic.name, topic.id)
            _log.info("%s: deleted", topic.name)
            return None

    def _publish(self, topic: Topic) -> None:
        self._by_name[topic.name] = self._by_id[topic.id] = topic
        self.revision += 1


def _settle(logs: Sequence[PartitionLog]) -> None:
    for log in logs:
        log.settle()
