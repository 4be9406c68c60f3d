"""The topics of the broker: created, deleted and opened; the metadata store says which there are.

The store goes first, the files follow. A crash between the two is healed at the next start: the logs of
a topic that was being created, or of partitions that were being added, are made anew, and so are new
logs that were never written to nor synced; those of a deleted topic are removed. A log that should be
there and is not takes its partition offline, and a directory that the store knows nothing of is left
alone: nothing is ever deleted, or begun anew, because of a fact that is missing.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from cleaner.text import count_text
from protocol.error_codes import ErrorCode
from server.executors import Executor
from server.metadata_store import Compare, Delete, MetadataStore, Put
from server.names_in_use import FOR_EVER
from server.topic import (
    DEFAULT,
    INTERNAL_TOPICS,
    OfflineLog,
    Topic,
    TopicDefaults,
    TopicRefused,
)
from server.topic_configs import TopicConfigs
from server.topic_creation import Wish, check_creation, fault_of_growth
from server.topic_deletion import BATCH_TOPICS, TopicDeletion
from server.topic_files import close_logs
from server.topic_growth import TopicGrowth
from server.topic_keys import (
    CREATING,
    TOPICS,
    UNSETTLED,
    as_json,
    first_unsettled,
)
from server.topic_making import TopicMaking, batches
from server.topic_names import collision_key, new_topic_id, parse_id
from server.topic_opening import TopicOpening
from server.topic_settling import TopicSettling
from server.topic_start import with_progress
from server.topic_work import TopicWork
from server.turns import Pace, Turns
from storage.config_property import ConfigError
from storage.errors import NoSpace
from storage.files import FileSystem
from storage.log import PartitionLog
from storage.log_config import LogConfig
from storage.log_directory import LogDirectory
from storage.paths import topic_id_text
from storage.recovery_progress import RecoveryProgress

_log = logging.getLogger("server.topics")


class Topics:
    """The sole owner of which topics exist. Lives on the event loop; disk work runs in threads."""

    __slots__ = (
        "_administration", "_by_id", "_by_name", "_defaults", "_deletion", "_directories",
        "_growth", "_making", "_names_by_key", "_new_id", "_on_removed",
        "_progress", "_recovery_threads", "_settling", "_store", "_unclean", "_work", "revision",
    )  # fmt: skip

    def __init__(
        self,
        store: MetadataStore,
        directories: Sequence[LogDirectory],
        *,
        files: FileSystem,
        defaults: TopicDefaults,
        administration: Executor,
        on_removed: Callable[[PartitionLog], None] = lambda _: None,
        new_id: Callable[[], uuid.UUID] = new_topic_id,
        recovery_threads: int = 1,
        progress: RecoveryProgress | None = None,
        has_all_directories: bool = True,
    ) -> None:
        """Begin with no topic; `open` finds those that there are.

        Args:
            administration: where files are made, synced and removed.
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
        self._administration = administration
        # What was checked of a topic stays true until it is written.
        self._work = TopicWork()
        self._deletion = TopicDeletion(
            store,
            directories,
            administration,
            files=files,
            has_all_directories=has_all_directories,
        )
        self._settling = TopicSettling(store, directories, administration)
        self._making = TopicMaking(
            store,
            directories,
            administration,
            self._deletion,
            self._settling,
            is_stopping=lambda: self._work.is_stopping,
        )
        self._growth = TopicGrowth(
            store,
            directories,
            administration,
            self._settling,
            has_all_directories=has_all_directories,
            is_stopping=lambda: self._work.is_stopping,
        )
        # State
        self.revision = 0
        """Another one whenever a topic comes, goes or changes; of this run."""
        self._defaults = defaults
        # What the store says, with the logs open.
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[uuid.UUID, Topic] = {}
        self._names_by_key: dict[str, str] = {}
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
        return [log for topic in list(self._by_name.values()) for log in topic.logs()]

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
        keys = [entry.key for entry in (await self._store.range(UNSETTLED)).entries]
        opening = TopicOpening(
            self._directories,
            self._defaults.config,
            threads_per_directory=self._recovery_threads,
            progress=self._progress,
        )
        work = partial(opening.open, known, unborn, first_unsettled(keys))
        topics = await with_progress(self._administration, work, self._progress)
        self._unclean = opening.unclean
        undone = {CREATING + topic_id for topic_id in opening.undecided}
        for topic in topics:
            if not topic.is_unborn:
                told = replace(topic, partitions=topic.born)
                self._publish(told)
            if len(topic.born) < len(topic.partitions):
                undone.add(CREATING + topic_id_text(topic.id))
                await self._take_back(topic)
        done = [Delete(key=entry.key) for entry in creating if entry.key not in undone]
        first = {parse_id(key): number for key, number in opening.unsettled.items()}
        opened = [(topic, first[topic.id]) for topic in self.all() if topic.id in first]
        await self._settling.resume(opened, keys, done)
        await self._deletion.resume()

    async def _take_back(self, topic: Topic) -> None:
        """Undo the creation of what nobody was told of, or leave it to the next start."""
        try:
            if topic.is_unborn:
                await self._deletion.mark([topic])
            else:
                await self._growth.undo(replace(topic, partitions=topic.born))
        except NoSpace as error:
            _log.warning("%s: its creation is taken back at the next start: %s", topic.name, error)

    def interrupt(self) -> None:
        """Begin no changes any more, and end soon what is under way: the broker stops.

        Topics and partitions whose logs are not all made are taken back.
        """
        self._work.interrupt()

    async def close(self) -> set[str]:
        """End what is under way, then close every log; a later start does the rest.

        Returns the ids of the directories of which not all is in order: the next start has to
        recover their logs, so nobody may call their stop a clean one.
        """
        await self._work.stop()
        await self._settling.stop()
        await self._deletion.stop()
        return self._unclean | await self._administration.run(close_logs, self.logs())

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
        """Create one topic; as `create_all`."""
        wish = Wish(
            name=name,
            partitions_count=partitions_count,
            replication_factor=replication_factor,
            overrides=dict(overrides or {}),
        )
        (answer,) = await self.create_all([wish], validate_only=validate_only)
        return answer

    async def create_all(
        self,
        wishes: Sequence[Wish],
        *,
        validate_only: bool = False,
        pace: Pace | None = None,
        until_s: float = FOR_EVER,
    ) -> list[Topic | TopicRefused]:
        """Create topics; those that are returned survive a crash, with all that is written to them.

        Args:
            validate_only: check everything and change nothing; the topics returned have no logs.
            pace: of the request that asks for them.
            until_s: when it is too late to begin, on the loop's clock; what was begun is finished.

        Raises:
            StorageError: the store failed; a start finds out which topics there are.
        """
        names = [wish.name for wish in wishes]
        work = self._create_all(wishes, validate_only, pace or Pace(Turns()))
        return await self._work.exclusively(names, until_s, work, len(wishes))

    async def _create_all(
        self, wishes: Sequence[Wish], validate_only: bool, pace: Pace
    ) -> list[Topic | TopicRefused]:
        defaults = self._defaults
        answers = await self._planned(wishes, defaults, pace)
        if validate_only:
            return answers
        made: dict[str, Topic | TopicRefused] = {}
        for batch in batches([each for each in answers if isinstance(each, Topic)]):
            results = await self._making.make(batch)
            made |= zip((topic.name for topic in batch), results, strict=True)
            async for topic in pace.paced([each for each in results if isinstance(each, Topic)]):
                made[topic.name] = self._publish_by(defaults, topic)
        return [made[each.name] if isinstance(each, Topic) else each for each in answers]

    async def _planned(
        self, wishes: Sequence[Wish], defaults: TopicDefaults, pace: Pace
    ) -> list[Topic | TopicRefused]:
        """What is wrong with each wish, or the topic that it would be, without logs."""
        configs = TopicConfigs(defaults.config)
        existing = ChainMap[str, str]({}, self._names_by_key)
        planned: list[Topic | TopicRefused] = []
        async for wish in pace.paced(wishes):
            checked = check_creation(wish, existing=existing, defaults=defaults, configs=configs)
            if isinstance(checked, TopicRefused):
                planned.append(checked)
                continue
            existing[collision_key(wish.name)] = wish.name
            planned.append(self._plan(wish, *checked))
        return planned

    def _plan(self, wish: Wish, count: int, config: LogConfig) -> Topic:
        return Topic(
            name=wish.name,
            id=self._new_id(),
            config=config,
            overrides=dict(wish.overrides),
            partitions=(OfflineLog.unborn(wish.name, 0),) * count,
        )

    async def create_if_absent(self, name: str) -> Topic | TopicRefused:
        """The topic, created with the defaults if there is none of this name."""
        if name in INTERNAL_TOPICS and name not in self._by_name:
            return TopicRefused(
                error_code=ErrorCode.INVALID_TOPIC_EXCEPTION,
                message=f"{name} is an internal topic and is not created on demand",
            )
        created = await self.create(name)
        return self._by_name.get(name) or created

    # Adding partitions.

    async def add_partitions(
        self,
        name: str,
        count: int,
        *,
        validate_only: bool = False,
        until_s: float = FOR_EVER,
    ) -> Topic | TopicRefused:
        """Have a topic have `count` partitions, more than it has; durable when this returns.

        Args:
            validate_only: check everything and change nothing; new partitions have no logs.
            until_s: when it is too late to begin, on the loop's clock.
        """
        work = self._add_partitions(name, count, validate_only)
        (answer,) = await self._work.exclusively([name], until_s, work, 1)
        return answer

    async def _add_partitions(
        self, name: str, count: int, validate_only: bool
    ) -> list[Topic | TopicRefused]:
        topic = self._by_name.get(name)
        if topic is None:
            return [TopicRefused.unknown(name)]
        defaults = self._defaults
        refusal = fault_of_growth(topic, count, defaults.partitions_max)
        if refusal is not None:
            return [refusal]
        unborn = (OfflineLog.unborn(name, len(topic.partitions)),)
        added = unborn * (count - len(topic.partitions))
        planned = replace(topic, partitions=topic.partitions + added)
        grown = planned if validate_only else await self._growth.grow(topic, planned)
        if isinstance(grown, Topic) and not validate_only:
            grown = self._publish_by(defaults, grown)
        return [grown]

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
        work = self._alter(name, change, validate_only)
        (answer,) = await self._work.exclusively([name], FOR_EVER, work, 1)
        return answer

    async def _alter(
        self,
        name: str,
        change: Callable[[Mapping[str, str], LogConfig], Mapping[str, str]],
        validate_only: bool,
    ) -> list[Topic | TopicRefused]:
        topic = self._by_name.get(name)
        if topic is None:
            return [TopicRefused.unknown(name)]
        defaults = self._defaults
        try:
            overrides = change(topic.overrides, defaults.config)
            config = LogConfig.from_overrides(overrides, defaults.config)
        except ConfigError as error:
            return [TopicRefused(error_code=ErrorCode.INVALID_CONFIG, message=str(error))]
        altered = replace(topic, overrides=dict(overrides), config=config)
        if validate_only or altered.overrides == topic.overrides:
            return [altered]
        return [await self._write_altered(altered, defaults)]

    async def _write_altered(self, altered: Topic, defaults: TopicDefaults) -> Topic | TopicRefused:
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
        for log in altered.logs():
            log.update_config(altered.config)
        altered = self._publish_by(defaults, altered)
        # Nothing goes any more by the configuration from before, once this is answered.
        await self._administration.run(_settle, altered.logs())
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
        if config == self._defaults.config:
            return
        self._defaults = replace(self._defaults, config=config)
        configs = TopicConfigs(config)
        followed: list[PartitionLog] = []
        for topic in self.all():
            its_config = configs.of(topic.name, topic.overrides)
            if its_config != topic.config:
                altered = replace(topic, config=its_config)
                self._publish(altered)
                for log in altered.logs():
                    log.update_config(its_config)
                followed += altered.logs()
        # Nothing goes any more by the configuration from before, once this is answered.
        await self._administration.run(_settle, followed)

    # Deleting.

    async def delete(self, topic: Topic) -> TopicRefused | None:
        """Delete one topic; as `delete_all`."""
        (refused,) = await self.delete_all([topic])
        return refused

    async def delete_all(
        self,
        topics: Sequence[Topic],
        *,
        pace: Pace | None = None,
        until_s: float = FOR_EVER,
    ) -> list[TopicRefused | None]:
        """Delete topics; None for each that is durably gone. Files are removed in the background.

        Args:
            pace: of the request that asks for it.
            until_s: when it is too late to begin, on the loop's clock; what was begun is finished.
        """
        names = [topic.name for topic in topics]
        work = self._delete_all(topics, pace or Pace(Turns()))
        return await self._work.exclusively(names, until_s, work, len(topics))

    async def _delete_all(self, topics: Sequence[Topic], pace: Pace) -> list[TopicRefused | None]:
        # As they are now: they may have grown since they were asked for.
        there = [found for topic in topics if (found := self._by_id.get(topic.id)) is not None]
        for start in range(0, len(there), BATCH_TOPICS):
            await self._delete_some(there[start : start + BATCH_TOPICS], pace)
        ids = {topic.id for topic in there}
        return [None if t.id in ids else TopicRefused.unknown(t.name) for t in topics]

    async def _delete_some(self, topics: Sequence[Topic], pace: Pace) -> None:
        await self._deletion.mark(topics)
        for topic in topics:
            del self._by_name[topic.name], self._by_id[topic.id]
            del self._names_by_key[collision_key(topic.name)]
        self.revision += 1
        async for log in pace.paced([log for topic in topics for log in topic.logs()]):
            log.retire()
            self._on_removed(log)
        self._deletion.remove_later([(topic.name, topic.id) for topic in topics])
        if len(topics) == 1:
            _log.info("%s: deleted", topics[0].name)
        else:
            names = ", ".join(topic.name for topic in topics)
            _log.info("%s deleted: %s", count_text(len(topics), "topic"), names)

    def _publish(self, topic: Topic) -> None:
        self._by_name[topic.name] = self._by_id[topic.id] = topic
        self._names_by_key[collision_key(topic.name)] = topic.name
        self.revision += 1

    def _publish_by(self, defaults: TopicDefaults, topic: Topic) -> Topic:
        """Publish a topic that was made by these defaults; others may hold by now."""
        if self._defaults is not defaults:
            config = TopicConfigs(self._defaults.config).of(topic.name, topic.overrides)
            topic = replace(topic, config=config)
            for log in topic.logs():
                log.update_config(config)
        self._publish(topic)
        return topic


def _settle(logs: Sequence[PartitionLog]) -> None:
    for log in logs:
        log.settle()
