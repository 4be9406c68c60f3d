"""One entry of `log.dirs`: checks who owns it and whether its last stop was clean, and holds its logs.

    open     lock, then `directory_start.py`: start counter + 1 (the leader epoch), clean marker gone
    close    marker written, lock released

A failing disk takes the whole directory offline: its logs refuse everything until the next start.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

from protocol.wire.numbers import Epoch, Offset
from storage.files.errors import LogOffline, MissingFile, StorageError, SyncFailed
from storage.files.files import FileSystem, Lock
from storage.files.paths import CLEAN_SHUTDOWN, DELETED, LOCK, join, topic_directory
from storage.files.put_aside import put_aside
from storage.formats.log_config import LogConfig
from storage.formats.log_identity import LogIdentity
from storage.formats.meta_properties import MetaProperties
from storage.formats.topic_partition import TopicPartition
from storage.log.copies import LogCopies
from storage.log.directory_service import DirectoryService
from storage.log.directory_start import (
    any_topic,
    make_durably,
    raise_start_counter,
    start_directory,
)
from storage.log.log import PartitionLog
from storage.log.new_logs import NewLogs
from storage.log.opening import LogOpening, open_log, plan_log
from storage.recovery.progress import RecoveryProgress
from storage.recovery.start_reserve import keep_reserve
from storage.recovery.was_used import was_used
from storage.segment.files import Background
from storage.state.log_states import PRODUCER_EXPIRATION_MS


class LogDirectory:
    """A locked log directory. Opened and closed once; logs are added and deleted in between."""

    __slots__ = (
        "_background",
        "_copies",
        "_epoch_lock",
        "_fs",
        "_hash_key",
        "_jitter",
        "_lock",
        "_logs",
        "_now_ms",
        "_on_failure",
        "_producer_expiration_ms",
        "_progress",
        "_service",
        "_was_clean",
        "leader_epoch",
        "meta",
        "new_logs",
        "path",
    )

    def __init__(
        self,
        fs: FileSystem,
        path: str,
        new_meta: MetaProperties,
        *,
        background: Background,
        now_ms: Callable[[], int],
        random_bytes: Callable[[int], bytes],
        jitter: Callable[[], float] = lambda: 0.0,
        producer_expiration_ms: int = PRODUCER_EXPIRATION_MS,
        progress: RecoveryProgress | None = None,
    ) -> None:
        """Lock the directory for this run; create it if it is new.

        Args:
            new_meta: the label of a new directory; an existing one must have the same cluster and node.
            random_bytes: a source of secrets.
            jitter: returns a random number from 0 to 1, a log's fraction of segment.jitter.ms.
            producer_expiration_ms: an idle producer is forgotten after this long.
            progress: receives the counts of recoveries when logs are opened.

        Raises:
            DirectoryLocked, ForeignDirectory, FormatFromTheFuture, DamagedFile: not ours to open.
            DiskError: the disk failed.
        """
        # Constant after construction
        self._fs = fs
        self._background = background
        self._now_ms = now_ms
        self._jitter = jitter
        self._progress = progress if progress is not None else RecoveryProgress()
        self.path = path
        make_durably(fs, path)
        self._lock: Lock = fs.lock(join(path, LOCK))
        try:
            started = start_directory(fs, path, new_meta, random_bytes)
        except BaseException:
            self._lock.release()
            raise
        self.meta = started.meta
        self.leader_epoch = started.leader_epoch
        self._hash_key = started.hash_key
        self._was_clean = started.was_clean
        self._service = DirectoryService(fs, path, self._take_logs_offline)
        self._copies = LogCopies(fs, self._service)
        self.new_logs = NewLogs(fs, path, self._service)
        """Makes the files of new logs, and makes them safe."""
        # State
        self._producer_expiration_ms = producer_expiration_ms
        self._epoch_lock = threading.Lock()
        # One bound method for all logs.
        self._on_failure = self.disk_failed
        # In the order in which they were opened; any thread adds and removes single logs.
        self._logs: dict[PartitionLog, None] = {}

    @property
    def directory_id(self) -> str:
        """The id by which the metadata store knows the directory."""
        return self.meta.directory_id

    @property
    def was_clean(self) -> bool:
        """Whether the last run stopped cleanly; otherwise every log is recovered when it is opened."""
        return self._was_clean

    # ---------------------------------------------------------------- logs

    def logs(self) -> tuple[PartitionLog, ...]:
        """Returns the open logs of the directory."""
        return tuple(self._logs)

    @property
    def logs_count(self) -> int:
        """The number of open logs."""
        return len(self._logs)

    def create_logs(
        self, topic: str, topic_id: uuid.UUID, config: LogConfig, partitions: Iterable[int]
    ) -> list[PartitionLog]:
        """Create empty logs without a sync: `new_logs` syncs, or each log before its first promise.

        The leftovers of an earlier try must have been deleted (`delete_topic`). An exception from the
        `partitions` iterable ends this; the logs that were created before it stay.

        Raises:
            DirectoryOffline: the directory is out of service.
            DiskError: the disk failed.
        """
        self._service.check_present()
        return [
            self._create_log(TopicPartition(topic, number), topic_id, config)
            for number in partitions
        ]

    def plan_logs(
        self, topic: str, topic_id: uuid.UUID, config: LogConfig, partitions: Iterable[int]
    ) -> list[PartitionLog]:
        """Returns empty logs without files, which `new_logs` creates, or each log's first write.

        Raises like `create_logs`.
        """
        self._service.check_present()
        return [
            self._plan_log(TopicPartition(topic, number), topic_id, config) for number in partitions
        ]

    def _create_log(
        self, topic_partition: TopicPartition, topic_id: uuid.UUID, config: LogConfig
    ) -> PartitionLog:
        log = self._plan_log(topic_partition, topic_id, config)
        log.new_files.make()
        return log

    def _plan_log(
        self, topic_partition: TopicPartition, topic_id: uuid.UUID, config: LogConfig
    ) -> PartitionLog:
        self._service.check_online()
        identity = self._identity(topic_partition, topic_id)
        opening, jitter, check = self._opening(), self._jitter(), self._service.check_present
        return self._take(
            plan_log(self._fs, identity, config, opening, jitter, check_directory=check)
        )

    def open_log(
        self,
        topic_partition: TopicPartition,
        topic_id: uuid.UUID,
        config: LogConfig,
        *,
        is_new: bool = False,
    ) -> PartitionLog:
        """Open a log whose creation was finished.

        Args:
            is_new: whether its names may not have been synced since its creation.

        Raises:
            CorruptLog, LogOffline, DamagedFile, FormatFromTheFuture: it cannot be repaired, or is
                gone; none of its files was removed.
            DirectoryOffline, DiskError: the directory is out of service, or the disk failed.
        """
        self._service.check_online()
        identity = self._identity(topic_partition, topic_id)
        with self._service.failed_syncs_are_final():
            log = open_log(
                self._fs, identity, config, self._opening(), self._jitter(), is_new=is_new
            )
        return self._take(log)

    def open_or_create_log(
        self, topic_partition: TopicPartition, topic_id: uuid.UUID, config: LogConfig
    ) -> PartitionLog:
        """Open a new log, or create it again if a crash has taken its files.

        Only a log that was never written to is created again: it holds nothing that could be lost.

        Raises like `open_log`.
        """
        path = join(
            self._topic_path(topic_partition.topic, topic_id), str(topic_partition.partition)
        )
        if self._fs.exists(path):
            try:
                return self._open_new_log(topic_partition, topic_id, config)
            except StorageError:
                if was_used(self._fs, path):
                    raise
        self._service.check_online()
        self._fs.remove_tree(path)
        return self._create_log(topic_partition, topic_id, config)

    def _open_new_log(
        self, topic_partition: TopicPartition, topic_id: uuid.UUID, config: LogConfig
    ) -> PartitionLog:
        log = self.open_log(topic_partition, topic_id, config, is_new=True)
        if log.log_end_offset:
            # From now on readers see these records, so the log's names must also survive.
            log.sync()
        return log

    def open_snapshot_log(
        self, topic_partition: TopicPartition, topic_id: uuid.UUID, config: LogConfig, path: str
    ) -> PartitionLog:
        """Open a log of a snapshot in this directory. Only the making of a snapshot writes to it. The
        caller retires it.

        It is not one of the directory's logs, and its failures do not take the directory offline.

        Args:
            topic_partition: the name under which it is read.
            topic_id: of the topic that the snapshot was made of.

        Raises like `open_log`.
        """
        identity = replace(self._identity(topic_partition, topic_id), directory=path)
        opening = replace(self._opening(), is_clean=True, on_failure=lambda _: None)
        return open_log(self._fs, identity, config, opening)

    def _take(self, log: PartitionLog) -> PartitionLog:
        self._logs[log] = None
        if self.offline_reason is not None:
            # The directory failed while another thread opened this log.
            log.go_offline(self.offline_reason)
        return log

    # ---------------------------------------------------------------- copies of logs

    def begin_copy(self, log: PartitionLog, start_offset: Offset) -> PartitionLog:
        """Create an empty log beside a log, in `<partition>.resync/`, that starts at `start_offset`. An
        earlier copy is removed. A worker thread.

        The copy is for `PartitionLog.replace_with`; `drop_copy` ends it. It fails with the directory,
        but is not one of its logs. A start does not find it again.

        Raises:
            DirectoryOffline, LogOffline: the directory is out of service, or the topic was deleted.
            DiskError: the copy cannot be created, for example on a full disk.
        """
        return self._copies.begin(log, start_offset, self._opening(), self._jitter())

    def drop_copy(self, copy: PartitionLog) -> None:
        """Close a copy and remove its directory. A worker thread. Dropping twice is allowed.

        Raises:
            DiskError: the disk failed; opening the partition removes the directory.
        """
        self._copies.drop(copy)

    # ---------------------------------------------------------------- deletion

    def delete_topic(self, topic: str, topic_id: uuid.UUID) -> None:
        """Remove a topic's directory with all its logs. Deleting twice is allowed.

        Raises:
            DiskError: the disk failed; the next start may try again.
        """
        self.delete_topics([(topic, topic_id)])

    def delete_topics(self, topics: Sequence[tuple[str, uuid.UUID]]) -> None:
        """Delete several topics like `delete_topic`, with one sync of the directory for all of them."""
        self._forget({topic_id for _, topic_id in topics})
        paths = [self._topic_path(*topic) for topic in topics]
        there = [path for path in paths if self._fs.exists(path)]
        with self._service.failed_syncs_are_final():
            for path in there:
                self._fs.rename(path, path + DELETED)
            if there:
                self._fs.sync_directory(self.path)
            for path in paths:
                self._fs.remove_tree(path + DELETED)

    def put_topics_aside(self, topics: Sequence[tuple[str, uuid.UUID]]) -> list[str]:
        """Rename topics' directories, with all that is in them, to `<topic>.<topic id>.before[.<n>]`: no
        start finds them again, and nothing of them is removed. Doing it twice is allowed.

        Returns the new paths.

        Raises:
            DiskError: the disk failed; the next start may try again.
        """
        self._forget({topic_id for _, topic_id in topics})
        paths = [self._topic_path(*topic) for topic in topics]
        with self._service.failed_syncs_are_final():
            moved = [put_aside(self._fs, path) for path in paths if self._fs.exists(path)]
            # Also if nothing was: an earlier run may have ended between a rename and its sync.
            self._fs.sync_directory(self.path)
        return moved

    def _forget(self, topic_ids: Collection[uuid.UUID]) -> None:
        for log in self.logs():
            if log.topic_id in topic_ids:
                self._logs.pop(log, None)
                if not log.is_retired:
                    # No client knows the log, because its creation failed.
                    log.retire()
                log.new_files.give_up()
        self._copies.forget(topic_ids)

    def expire_producers_after(self, expiration_ms: int) -> None:
        """Set the time after which all logs, including those opened later, forget idle producers."""
        self._producer_expiration_ms = expiration_ms
        for log in self.logs():
            log.expire_producers_after(expiration_ms)

    def partitions_on_disk(self, topic: str, topic_id: uuid.UUID) -> list[int]:
        """Returns the partitions of a topic that have a directory here, even if no log is open.

        Raises:
            DiskError: the disk failed.
        """
        try:
            names = self._fs.list(self._topic_path(topic, topic_id))
        except MissingFile:
            return []
        return sorted(int(name) for name in names if name.isdecimal())

    def any_topic(self) -> str | None:
        """Returns the path of any topic's directory, even if no log is open; None if there is none.

        Raises:
            DiskError: the disk failed.
        """
        return any_topic(self._fs, self.path)

    def used_partitions(self, topic: str, topic_id: uuid.UUID, first: int) -> list[int]:
        """Returns the partitions of a topic from `first` on that were written to.

        Raises:
            DiskError: the disk failed, so the answer is unknown.
        """
        path = self._topic_path(topic, topic_id)
        there = [n for n in self.partitions_on_disk(topic, topic_id) if n >= first]
        return [number for number in there if was_used(self._fs, join(path, str(number)))]

    def delete_partitions(self, topic: str, topic_id: uuid.UUID, first: int) -> None:
        """Remove a topic's partitions from `first` on, which were never announced to clients.

        Raises:
            LogOffline: one of them was written to, so clients know it; none is removed.
            DiskError: the disk failed; some of them may be gone.
        """
        path = self._topic_path(topic, topic_id)
        for number in self.used_partitions(topic, topic_id, first):
            text = f"{join(path, str(number))} holds records, so it is not removed"
            raise LogOffline(str(TopicPartition(topic, number)), text)
        for log in self.logs():
            if log.topic_id == topic_id and log.topic_partition.partition >= first:
                log.retire()
                log.new_files.give_up()
                self._logs.pop(log, None)
        numbers = [n for n in self.partitions_on_disk(topic, topic_id) if n >= first]
        with self._service.failed_syncs_are_final():
            for number in numbers:
                self._fs.remove_tree(join(path, str(number)))
            if numbers:
                self._fs.sync_directory(path)

    def _topic_path(self, topic: str, topic_id: uuid.UUID) -> str:
        return join(self.path, topic_directory(topic, topic_id))

    def _identity(self, topic_partition: TopicPartition, topic_id: uuid.UUID) -> LogIdentity:
        topic_path = self._topic_path(topic_partition.topic, topic_id)
        return LogIdentity(
            topic_partition=topic_partition,
            topic_id=topic_id,
            directory=join(topic_path, str(topic_partition.partition)),
            directory_id=self.directory_id,
            hash_key=self._hash_key,
        )

    def _opening(self) -> LogOpening:
        return LogOpening(
            leader_epoch=self.leader_epoch,
            background=self._background,
            on_failure=self._on_failure,
            now_ms=self._now_ms(),
            is_clean=self._was_clean,
            producer_expiration_ms=self._producer_expiration_ms,
            progress=self._progress,
            clock_ms=self._now_ms,
        )

    def raise_epoch(self, epoch: Epoch) -> None:
        """Let every later start lead with an epoch above `epoch + 1`, with which a log may lead in this
        run (`PartitionLog.lead_above`). A worker thread, before the first batch of that epoch is
        appended.

        Raises:
            DirectoryOffline: the directory is out of service.
            DiskError: it cannot be written.
        """
        self._service.check_online()
        with self._epoch_lock, self._service.failed_syncs_are_final():
            raise_start_counter(self._fs, self.path, epoch)

    # ---------------------------------------------------------------- out of service, the end

    def keep_reserve(self) -> None:
        """Reserve space for the next start, unless that is done or the disk has no space."""
        if self.offline_reason is None and keep_reserve(self._fs, self.path):
            lost = contextlib.suppress(MissingFile, SyncFailed)
            with lost, self._service.failed_syncs_are_final():
                self._fs.sync_directory(self.path)

    @property
    def offline_reason(self) -> str | None:
        """Why the directory is out of service; None while it is in service."""
        return self._service.offline_reason

    def go_offline(self, reason: str) -> None:
        """Take the directory's logs out of service until the next start."""
        self._service.go_offline(reason)

    def disk_failed(self, error: StorageError) -> None:
        """Go offline, because the disk failed. After a failed sync, leave a mark for the next start."""
        self._service.disk_failed(error)

    def _take_logs_offline(self, reason: str) -> None:
        for log in self.logs():
            log.go_offline(reason)
        self._copies.go_offline(reason)

    def close(self) -> None:
        """Write the marker of a clean stop and release the lock. Every log must be closed before.

        Copies are dropped: a start after a clean stop does not look for them.

        Raises:
            DiskError: the disk failed; the next start recovers.
        """
        try:
            if self.offline_reason is None:
                self._copies.drop_all()
                self._fs.write_bytes(join(self.path, CLEAN_SHUTDOWN), b"clean\n")
                self._fs.sync_directory(self.path)
        finally:
            self._lock.release()
