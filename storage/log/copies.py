"""The copies that resyncs are filling, each beside its log: `<partition>.resync/`.

begun -> filled like any log -> has replaced its log, or has not -> dropped

A copy fails with its directory, but is not one of the directory's logs: no timer, no cleaner and no
retention looks at it. What a crash leaves of it is removed when the partition is opened.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from uuid import UUID

from protocol.wire.numbers import Offset
from storage.files.errors import StorageError
from storage.files.files import FileSystem, remove_tree_durably
from storage.files.paths import copy_directory
from storage.log.directory_service import DirectoryService
from storage.log.log import PartitionLog
from storage.log.opening import LogOpening, plan_log
from storage.threads import any_thread


@any_thread
class LogCopies:
    """The copies of one log directory."""

    __slots__ = ("_copies", "_fs", "_service")

    def __init__(self, fs: FileSystem, service: DirectoryService) -> None:
        # Constant after construction
        self._fs = fs
        self._service = service
        # State: any thread adds and removes single ones.
        self._copies: dict[PartitionLog, None] = {}

    def begin(
        self, log: PartitionLog, start_offset: Offset, opening: LogOpening, jitter: float
    ) -> PartitionLog:
        """Create a copy. See `LogDirectory.begin_copy`."""
        self._service.check_present()
        self._service.check_online()
        identity = replace(log.identity, directory=copy_directory(log.directory))
        for copy in self._all():
            if copy.directory == identity.directory:
                self.drop(copy)
        self._fs.remove_tree(identity.directory)
        opening = replace(opening, leader_epoch=log.leader_epoch)
        copy = plan_log(
            self._fs,
            identity,
            log.config,
            opening,
            jitter,
            start_offset=start_offset,
            check_directory=self._service.check_present,
        )
        self._copies[copy] = None
        # Another thread may have taken the directory offline, or deleted the topic, before it saw this.
        if self._service.offline_reason is not None:
            copy.go_offline(self._service.offline_reason)
        if log.is_retired:
            self._retire(copy)
        try:
            copy.new_files.make()
            # Before the first append, because there are no files of them to read later.
            _ = copy.epochs, copy.producers
        except StorageError:
            self._retire(copy)
            self._copies.pop(copy, None)
            raise
        return copy

    def drop(self, copy: PartitionLog) -> None:
        """Close a copy and remove its directory. See `LogDirectory.drop_copy`."""
        self._retire(copy)
        with self._service.failed_syncs_are_final():
            remove_tree_durably(self._fs, copy.directory)
        # If that fails, `drop_all` tries once more: a start after a clean stop does not look for copies.
        self._copies.pop(copy, None)

    def drop_all(self) -> None:
        """Drop every copy. Raises DiskError."""
        for copy in self._all():
            self.drop(copy)

    def forget(self, topic_ids: Collection[UUID]) -> None:
        """Take the copies of deleted topics out of service. Waits for a replacement that is running."""
        for copy in self._all():
            if copy.topic_id in topic_ids:
                self._retire(copy)
                self._copies.pop(copy, None)

    def go_offline(self, reason: str) -> None:
        """Take all copies out of service."""
        for copy in self._all():
            copy.go_offline(reason)

    def _retire(self, copy: PartitionLog) -> None:
        if not copy.is_retired:
            copy.retire()
        copy.new_files.give_up()
        copy.wait_for_commit()

    def _all(self) -> tuple[PartitionLog, ...]:
        return tuple(self._copies)
