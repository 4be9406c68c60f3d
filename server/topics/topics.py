"""Creates, opens, alters and deletes the broker's topics.

The cluster's store lists the topics that exist, the node's store where their logs are. Every change is
written to the stores first, then to the files. The next start repairs a crash between two of these steps
(`reconciliation.py`): it creates missing logs that were never written to nor synced, and removes the
logs of deleted topics, and those that were never acknowledged. If any other log is missing, its
partition goes offline. A directory that is in no store is left alone: missing metadata never causes a
deletion or a new, empty log.

`alter` changes a topic's configuration while the broker runs: first in the store (`alteration.py`), then
in each of its logs (`storage/log/log.py`: `update_config`). `follow_defaults` does the same for changed
defaults of the broker.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from cleaner.rules.harmful_settings import harmful_settings, names_text, topics_by_harm
from cleaner.rules.text import count_text
from protocol.wire.error_codes import ErrorCode
from server.metadata.store import MetadataStore
from server.runtime.executors import Executor
from server.runtime.turns import Pace, Turns
from server.topics.alteration import Change, altered_topic, wait_for_commits, write_overrides
from server.topics.creation import TopicCreation, batches
from server.topics.deletion import BATCH_TOPICS, TopicDeletion
from server.topics.files import close_logs
from server.topics.growth import TopicGrowth
from server.topics.keys import topic_of_unsettled
from server.topics.log_opening import TopicOpening
from server.topics.names import new_topic_id
from server.topics.names_in_use import FOR_EVER
from server.topics.planning import planned_topics
from server.topics.reconciliation import Reconciled, Reconciliation
from server.topics.settling import TopicSettling
from server.topics.start import StoredTopics, read_topics, with_progress
from server.topics.table import TopicTable
from server.topics.topic import (
    DEFAULT,
    INTERNAL_TOPICS,
    OfflineLog,
    Topic,
    TopicDefaults,
    TopicRefused,
)
from server.topics.validation import Admit, NewTopic, admit_all, fault_of_growth
from server.topics.work import TopicWork
from storage.files.files import FileSystem
from storage.files.paths import topic_id_text
from storage.formats.log_config import LogConfig
from storage.log.directory import LogDirectory
from storage.log.log import PartitionLog
from storage.recovery.progress import RecoveryProgress
from storage.threads import loop_thread

_log = logging.getLogger("server.topics.topics")


@loop_thread
class Topics(TopicTable):
    """Sole owner of the set of topics. Disk work runs in threads."""

    __slots__ = (
        "_administration", "_creation", "_deletion", "_directories", "_growth", "_has_all_directories",
        "_new_id", "_node_store", "_on_removed", "_progress", "_recovery_threads", "_settling",
        "_store", "_unclean", "_work",
    )  # fmt: skip

    def __init__(
        self,
        store: MetadataStore,
        node_store: MetadataStore,
        directories: Sequence[LogDirectory],
        *,
        files: FileSystem,
        defaults: TopicDefaults,
        administration: Executor,
        removals: Executor,
        on_removed: Callable[[PartitionLog], None] = lambda _: None,
        new_id: Callable[[], uuid.UUID] = new_topic_id,
        recovery_threads: int = 1,
        progress: RecoveryProgress | None = None,
        has_all_directories: bool = True,
    ) -> None:
        """Start without topics; `open` reads them from the stores.

        Args:
            store: the cluster's facts.
            node_store: this node's.
            administration: the threads that create and sync files.
            removals: the threads that remove the files of deleted topics.
            on_removed: called with every log of a deleted topic, before its files are removed.
            recovery_threads: the number of logs of one directory that are recovered in parallel.
            progress: receives the progress of the start; pass the same object to the directories.
            has_all_directories: whether every directory of `log.dirs` is open; if not, deleted topics
                may have files in the others, so the store keeps them for a later start.
        """
        super().__init__(defaults)
        # Constant after construction
        self._store = store
        self._node_store = node_store
        self._directories = directories
        self._has_all_directories = has_all_directories
        self._on_removed = on_removed
        self._new_id = new_id
        self._recovery_threads = recovery_threads
        self._progress = progress if progress is not None else RecoveryProgress()
        self._administration = administration
        # Runs one change of a topic at a time, so that checks stay valid until the change is written.
        self._work = TopicWork()
        self._deletion = TopicDeletion(
            store,
            node_store,
            directories,
            removals,
            administration=administration,
            files=files,
            has_all_directories=has_all_directories,
        )
        self._settling = TopicSettling(node_store, directories, administration)
        self._creation = TopicCreation(
            store,
            node_store,
            directories,
            administration,
            self._deletion,
            self._settling,
            is_stopping=lambda: self._work.is_stopping,
        )
        self._growth = TopicGrowth(
            store,
            node_store,
            directories,
            administration,
            self._settling,
            is_stopping=lambda: self._work.is_stopping,
        )
        # State: ids of directories with a log that could not be opened.
        self._unclean: set[str] = set()

    # Starting and stopping.

    async def open(self) -> None:
        """Open the log of every partition in the stores, and continue unfinished deletions.

        A log that cannot be opened is offline with its reason; the others are served.

        Raises:
            StorageError: a store cannot be read, or cannot get back what it has lost.
        """
        stored = await read_topics(self._store, self._node_store, self._administration)
        reconciliation = Reconciliation(
            self._directories, has_all_directories=self._has_all_directories
        )
        found = await self._administration.run(reconciliation.reconcile, stored)
        if found.cluster:
            await self._store.txn((), found.cluster)
        opening = TopicOpening(
            self._directories,
            self._defaults.config,
            threads_per_directory=self._recovery_threads,
            progress=self._progress,
        )
        work = partial(opening.open, found.topics)
        for topic in await with_progress(self._administration, work, self._progress):
            self._publish(topic)
        self._unclean = opening.unclean
        await self._continue(stored, found)

    async def _continue(self, stored: StoredTopics, found: Reconciled) -> None:
        """Continue what the last run has not completed."""
        first = {
            each.id: each.first_unsettled
            for each in found.topics
            if each.first_unsettled is not None and each.id not in found.undecided
        }
        opened = [(topic, first[topic.id]) for topic in self.all() if topic.id in first]
        undecided = {topic_id_text(topic_id) for topic_id in found.undecided}
        keys = [key for key in stored.unsettled_keys if topic_of_unsettled(key) not in undecided]
        await self._settling.resume(opened, keys, found.node)
        await self._deletion.resume(self._by_id.keys())

    def interrupt(self) -> None:
        """Refuse new changes and end the running ones soon, because the broker is stopping.

        Creations whose logs do not all exist yet are undone.
        """
        self._work.interrupt()

    async def close(self) -> set[str]:
        """End the running changes, then close every log; a later start completes removals and syncs.

        Returns the ids of the directories with a log that is offline or did not close cleanly: they must
        not be marked clean, so that the next start recovers their logs.
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
        topic_id: uuid.UUID | None = None,
        validate_only: bool = False,
    ) -> Topic | TopicRefused:
        """Create one topic; as `create_all`."""
        new_topic = NewTopic(
            name=name,
            partitions_count=partitions_count,
            replication_factor=replication_factor,
            overrides=dict(overrides or {}),
            topic_id=topic_id,
        )
        (answer,) = await self.create_all([new_topic], validate_only=validate_only)
        return answer

    async def create_all(
        self,
        new_topics: Sequence[NewTopic],
        *,
        validate_only: bool = False,
        pace: Pace | None = None,
        until_s: float = FOR_EVER,
        admit: Admit = admit_all,
    ) -> list[Topic | TopicRefused]:
        """Create topics. Returns each topic, or why it is refused.

        A topic that was returned survives a crash, with every acknowledged record.

        Args:
            validate_only: check everything and change nothing; the topics returned have no logs.
            pace: the pace of the client's request.
            until_s: when it is too late to start, on the loop's clock; started work is finished.
            admit: called for each valid topic; may refuse it.

        Raises:
            StorageError: the store failed; the next start finds out which topics exist.
        """
        names = [new_topic.name for new_topic in new_topics]
        pace = pace or Pace(Turns())
        work = self._create_all(new_topics, validate_only, pace, admit)
        return await self._work.exclusively(names, until_s, work, len(new_topics), pace=pace)

    async def _create_all(
        self, new_topics: Sequence[NewTopic], validate_only: bool, pace: Pace, admit: Admit
    ) -> list[Topic | TopicRefused]:
        defaults = self._defaults
        answers = await planned_topics(
            new_topics, self._names_by_key, defaults, new_id=self._new_id, pace=pace, admit=admit
        )
        answers = [self._unless_unfinished(each) for each in answers]
        if validate_only:
            return answers
        made: dict[str, Topic | TopicRefused] = {}
        for batch in batches([each for each in answers if isinstance(each, Topic)]):
            results = await self._creation.create(batch)
            made |= zip((topic.name for topic in batch), results, strict=True)
            async for topic in pace.paced([each for each in results if isinstance(each, Topic)]):
                made[topic.name] = self._publish_by(defaults, topic)
        _warn_of_harm([each for each in made.values() if isinstance(each, Topic)])
        return [made[each.name] if isinstance(each, Topic) else each for each in answers]

    async def create_if_absent(self, name: str) -> Topic | TopicRefused:
        """Returns the topic; creates it with the defaults if no topic has this name."""
        if name in INTERNAL_TOPICS and name not in self._by_name:
            return TopicRefused(
                error_code=ErrorCode.INVALID_TOPIC_EXCEPTION,
                message=f"{name} is an internal topic and is not created on demand",
            )
        created = await self.create(name)
        return self._by_name.get(name) or created

    # Adding partitions.

    async def make_files(self, *logs: PartitionLog) -> None:
        """Create the files of new logs in a thread, unless they exist: the first writes are next.

        Raises:
            LogOffline: the topic was deleted.
            DiskError: the files cannot be created.
        """
        await self._administration.run(_make_files, logs)

    async def add_partitions(
        self,
        name: str,
        count: int,
        *,
        validate_only: bool = False,
        until_s: float = FOR_EVER,
        admit: Admit = admit_all,
    ) -> Topic | TopicRefused:
        """Increase a topic's number of partitions to `count`; durable when this returns.

        Args:
            validate_only: check everything and change nothing; new partitions have no logs.
            until_s: when it is too late to start, on the loop's clock.
            admit: called if the topic may grow; may refuse it.
        """
        work = self._add_partitions(name, count, validate_only, admit)
        (answer,) = await self._work.exclusively([name], until_s, work, 1)
        return answer

    async def _add_partitions(
        self, name: str, count: int, validate_only: bool, admit: Admit
    ) -> list[Topic | TopicRefused]:
        topic = self._by_name.get(name)
        if topic is None:
            return [TopicRefused.unknown(name)]
        defaults = self._defaults
        refusal = fault_of_growth(topic, count, defaults.partitions_max) or admit(
            count - len(topic.partitions)
        )
        if refusal is not None:
            return [refusal]
        placeholder = (OfflineLog.planned(name, len(topic.partitions)),)
        added = placeholder * (count - len(topic.partitions))
        planned = replace(topic, partitions=topic.partitions + added)
        grown = planned if validate_only else await self._growth.grow(topic, planned)
        if isinstance(grown, Topic) and not validate_only:
            grown = self._publish_by(defaults, grown)
        return [grown]

    # Changing.

    async def alter(
        self,
        name: str,
        change: Change,
        *,
        validate_only: bool = False,
    ) -> Topic | TopicRefused:
        """Change a topic's overrides; durable, and in effect in its logs, when this returns.

        Args:
            change: returns the new overrides for the old ones and the broker's defaults; may raise
                ConfigError.
            validate_only: check everything and change nothing.
        """
        work = self._alter(name, change, validate_only)
        (answer,) = await self._work.exclusively([name], FOR_EVER, work, 1)
        return answer

    async def _alter(
        self, name: str, change: Change, validate_only: bool
    ) -> list[Topic | TopicRefused]:
        topic = self._by_name.get(name)
        if topic is None:
            return [TopicRefused.unknown(name)]
        defaults = self._defaults
        altered = altered_topic(topic, change, defaults.config)
        if isinstance(altered, TopicRefused) or validate_only:
            return [altered]
        if altered.overrides == topic.overrides:
            return [altered]
        refusal = await write_overrides(self._store, altered)
        return [await self._apply_altered(altered, defaults) if refusal is None else refusal]

    async def _apply_altered(self, altered: Topic, defaults: TopicDefaults) -> Topic:
        """Apply a configuration that the store has to the topic's logs."""
        for log in altered.logs():
            log.update_config(altered.config)
        altered = self._publish_by(defaults, altered)
        # A manifest commit that runs now may still use the old configuration. The client gets its answer
        # only once that commit has ended.
        await self._administration.run(wait_for_commits, altered.logs())
        _log.info("%s: configured with %s", altered.name, altered.overrides)
        _warn_of_harm([altered])
        return altered

    async def follow_defaults(self, config: LogConfig) -> None:
        """Use other defaults for new topics, and for the properties that topics do not override."""
        if config == self._defaults.config:
            return
        # As in `_apply_altered`.
        await self._administration.run(wait_for_commits, self._set_defaults(config))

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
        """Delete topics. Returns None for each that is durably gone, or why it is refused.

        Files are removed in the background.

        Args:
            pace: the pace of the client's request.
            until_s: when it is too late to start, on the loop's clock; started work is finished.
        """
        names = [topic.name for topic in topics]
        pace = pace or Pace(Turns())
        work = self._delete_all(topics, pace, keeps_files=False)
        return await self._work.exclusively(names, until_s, work, len(topics), pace=pace)

    async def put_aside(self, topic: Topic) -> TopicRefused | None:
        """Delete one topic, but keep its files: its directories are renamed before this returns
        (`LogDirectory.put_topics_aside`). Returns and raises as `delete`."""
        work = self._delete_all([topic], Pace(Turns()), keeps_files=True)
        (refused,) = await self._work.exclusively([topic.name], FOR_EVER, work, 1)
        return refused

    def _unless_unfinished(self, planned: Topic | TopicRefused) -> Topic | TopicRefused:
        """Refuse the id of a topic that is gone, as long as a directory may have its files. Only a
        mirror can have such an id."""
        if isinstance(planned, Topic) and self._deletion.is_unfinished(planned.id):
            text = (
                f"The files of the former topic '{planned.name}' are not yet removed or put aside."
            )
            return TopicRefused.by_disk(text)
        return planned

    async def _delete_all(
        self, topics: Sequence[Topic], pace: Pace, *, keeps_files: bool
    ) -> list[TopicRefused | None]:
        # Look the topics up again: they may have grown or been deleted since the request arrived.
        existing = [found for topic in topics if (found := self._by_id.get(topic.id)) is not None]
        for start in range(0, len(existing), BATCH_TOPICS):
            some = existing[start : start + BATCH_TOPICS]
            await self._delete_some(some, pace, keeps_files=keeps_files)
        ids = {topic.id for topic in existing}
        return [None if t.id in ids else TopicRefused.unknown(t.name) for t in topics]

    async def _delete_some(self, topics: Sequence[Topic], pace: Pace, *, keeps_files: bool) -> None:
        await self._deletion.mark(topics, keeps_files=keeps_files)
        self._remove(topics)
        async for log in pace.paced([log for topic in topics for log in topic.logs()]):
            log.retire()
            self._on_removed(log)
        gone = [(topic.name, topic.id) for topic in topics]
        if keeps_files:
            await self._deletion.put_aside(gone)
        else:
            self._deletion.remove_later(gone)
        verb = "put aside" if keeps_files else "deleted"
        if len(topics) == 1:
            _log.info("%s: %s", topics[0].name, verb)
        else:
            names = ", ".join(topic.name for topic in topics)
            _log.info("%s %s: %s", count_text(len(topics), "topic"), verb, names)


def _warn_of_harm(topics: Iterable[Topic]) -> None:
    """Log what the settings of new or altered topics do that no one can want."""
    harms = {topic.name: harmful_settings(topic.config) for topic in topics if topic.overrides}
    for harm, names in topics_by_harm(harms).items():
        _log.warning("%s: %s", names_text(names), harm)


def _make_files(logs: Iterable[PartitionLog]) -> None:
    for log in logs:
        log.new_files.make()
