"""The embedded metadata store's log and snapshots: `replog` with the metadata's state machine.

A single broker leads its own log, each start in a term of its own. `replog/` has the files and their
recovery; `machine.py` has the commands and the rows of snapshots. Files of an earlier release
(`old_files.py`) are read at the first start, and removed when the first snapshot after that is complete.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from time import monotonic

from replog.checkpoints import Checkpoints
from replog.entry import FIRST_INDEX, Entry, Kind, SnapshotId
from replog.entry_log import EntryLog
from replog.independent import Independent
from replog.messages import Answer, Request
from replog.offline_merge.merging_snapshotter import OfflineMerge
from replog.replica import Replica, read_directory
from replog.serving import answer
from replog.snapshotter import InProcess, Snapshotter
from replog.tail import Tail
from replog.trigger import CompactionSettings, Reason, SnapshotterName
from server.metadata.machine import MetadataMachine, Operation, encode_command
from server.metadata.old_files import has_old_files, read_old_machine, remove_old_files
from storage.files.errors import MissingMetadata, StorageError
from storage.files.files import FileSystem
from storage.files.local_files import LocalFileSystem

_log = logging.getLogger("server.metadata.log")

SMALL_BYTES = 64 << 10
"""A state up to this size is written at once: that takes less time than a sync."""
MERGED_BYTES_MIN = 16 << 20
"""A smaller state, of about 100,000 entries, is written in less CPU time than a child takes to start."""
MERGER = "server.metadata.merger:MetadataMerger"


class MetadataLog:
    """The open log. One thread at a time. After a failed sync it is permanently out of service."""

    __slots__ = (
        "_any_topic", "_directory", "_files", "_has_old_files", "_on_failure", "_tail", "_term_min",
        "compactor", "machine", "replica",
    )  # fmt: skip

    def __init__(
        self,
        files: FileSystem,
        directory: str,
        settings: CompactionSettings,
        *,
        on_failure: Callable[[StorageError], None] = lambda _: None,
        any_topic: Callable[[], str | None] = lambda: None,
        term_min: int = 1,
    ) -> None:
        """Create the log closed; `recover` opens it.

        Args:
            on_failure: called with the error that put the log out of service.
            any_topic: returns the path of some topic's directory, or None.
            term_min: the least term in which it leads.
        """
        # Constant after construction
        self._files = files
        self._directory = directory
        self._on_failure = on_failure
        self._any_topic = any_topic
        self._term_min = term_min
        self.machine = MetadataMachine()
        self.replica = Replica(
            files,
            directory,
            self.machine,
            clock_ms=lambda: monotonic() * 1000,
            segment_bytes=settings.segment_bytes,
        )
        self.compactor = Independent(self.replica, settings, _snapshotter(files, settings))
        # State
        self._has_old_files = False
        self._tail = Tail()

    def recover(self) -> None:
        """Bring the machine to its last state, and open the log for appending.

        Raises:
            CorruptLog, DamagedFile: acknowledged changes can no longer be read.
            MissingMetadata: there is a topic, but no transaction; nothing was changed.
            FormatFromTheFuture: a later release wrote the files.
        """
        files, directory = self._files, self._directory
        if not files.exists(directory):
            self._check_may_be_new()
            files.make_directory(directory)
            files.sync_directory(directory.rpartition("/")[0])
        self._has_old_files = has_old_files(files, directory)
        if self._has_old_files:
            self._migrate()
        self.replica.open(self._check_may_be_new)
        self.replica.lead(max(self.replica.log.last_term + 1, self._term_min))
        self.compactor.opened()

    def append(self, operations: Sequence[Operation]) -> Entry:
        """Write one transaction and sync it. The caller applies it, then calls `applied`.

        Raises:
            StorageError: it was not written; after SyncFailed, nothing more can be written.
        """
        try:
            frame = self.replica.append([(Kind.COMMAND, encode_command(operations))])
        except StorageError as error:
            self._report(error)
            raise
        self._tail.appended(frame)
        return frame.entries()[0]

    def applied(self, entry: Entry) -> None:
        """Note that the caller has applied the last transaction to the machine."""
        self.replica.note_applied(entry)

    def answer(self, request: Request, bytes_max: int) -> Answer:
        """Returns the answer to a follower, read from the disk if need be. Raises StorageError."""
        return answer(self.replica, request, bytes_max, self._tail)

    def due(self, *, is_quiet: bool = False) -> Reason | None:
        """Returns why a snapshot should begin now; None if none should."""
        return self.compactor.due(is_quiet=is_quiet)

    @property
    def is_small(self) -> bool:
        """Whether the state is so small that a snapshot is written at once."""
        return self.machine.size_bytes() <= SMALL_BYTES

    def begin_snapshot(self) -> None:
        """Begin a snapshot of the state as it is now. Raises StorageError: there will be none."""
        try:
            self.compactor.begin()
        except StorageError as error:
            self.compactor.abandon()
            self._report(error)
            raise

    def write_snapshot(self) -> None:
        """Write its rows. Any thread may do that, while transactions are appended and applied."""
        while self.compactor.step():
            pass

    def finish_snapshot(self) -> bool:
        """Make it durable, and remove what it replaces.

        Returns False if it was not made, because a child process has failed, and another one was begun,
        which must be written.
        """
        before = self.replica.snapshot
        try:
            self.compactor.finish()
        except BaseException:
            # While a snapshot is under way, no other one is due: never leave one that has failed.
            self.abandon_snapshot()
            raise
        if self._has_old_files and self.replica.snapshot != before:
            remove_old_files(self._files, self._directory)
            self._has_old_files = False
        return not self.compactor.is_snapshotting

    def stop_snapshot(self) -> None:
        """End a child process, without its snapshot; any thread may call."""
        self.compactor.stop()

    def abandon_snapshot(self) -> None:
        """Give up the snapshot that was begun."""
        self.compactor.abandon()

    def close(self) -> None:
        """Close the file. Everything appended is already durable."""
        self.replica.close()

    def _check_may_be_new(self) -> None:
        # A topic's first transaction is durable before its directory is created.
        topic = self._any_topic()
        if topic is not None:
            raise MissingMetadata(self._directory, topic)

    def _report(self, error: StorageError) -> None:
        if self.replica.log.is_broken:
            _log.critical("metadata log: a sync failed, now out of service: %s", error)
            self._on_failure(error)

    def _migrate(self) -> None:
        """Turn an earlier release's files into a snapshot, unless that was done."""
        files, directory = self._files, self._directory
        segments, snapshots = read_directory(files, directory)
        if snapshots or any(found.frames for found in segments):
            return
        machine = read_old_machine(files, directory)
        if machine.revision == 0:
            return
        for found in segments:
            # A start that did not complete has created it.
            files.unlink(found.segment.path)
        snapshot = SnapshotId(FIRST_INDEX + machine.revision, 1)
        checkpoints = Checkpoints(files, directory)
        writer = checkpoints.begin(snapshot, machine.snapshot(), machine.digest())
        while writer.step():
            pass
        writer.finish()
        EntryLog.create(files, directory, snapshot.end, snapshot.term).close()
        files.restrict(directory)
        checkpoints.publish(snapshot)
        _log.info(
            "%s: read revision %d from the files of an earlier release; they are removed after the"
            " next snapshot",
            directory, machine.revision,
        )  # fmt: skip


def _snapshotter(files: FileSystem, settings: CompactionSettings) -> Snapshotter:
    # A child process opens the operating system's files.
    is_merged = settings.snapshotter is SnapshotterName.OFFLINE_MERGE
    if is_merged and isinstance(files, LocalFileSystem):
        return OfflineMerge(MERGER, bytes_min=MERGED_BYTES_MIN)
    return InProcess()


def read_machine(files: FileSystem, directory: str) -> MetadataMachine:
    """Returns the machine with the state that is in a directory, and changes nothing there.

    Raises:
        CorruptLog, DamagedFile: acknowledged changes can no longer be read.
        FormatFromTheFuture: a later release wrote the files.
    """
    machine = MetadataMachine()
    plan = Replica(files, directory, machine, clock_ms=lambda: 0.0).read()
    if not plan.log and has_old_files(files, directory):
        return read_old_machine(files, directory)
    for found in plan.log:
        for frame in found.frames:
            for entry in frame.entries():
                if entry.index >= plan.snapshot.end and entry.kind is Kind.COMMAND:
                    machine.apply(entry.index, entry.payload)
    return machine
