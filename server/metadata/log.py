"""The embedded metadata store's log, open for appending. `files.py` has the format.

A snapshot is written atomically, then a new log is started, then older files are removed: a crash in
between leaves redundant files. A torn last frame is cut off and saved as `cut.<revision>.<n>`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from cleaner.rules.text import count_text
from server.metadata.files import (
    FORMAT,
    NAME,
    Metadata,
    Operation,
    State,
    Transaction,
    encode_frame,
    encode_snapshot,
    metadata_file,
    read_metadata,
)
from storage.files.errors import MissingMetadata, NoSpace, StorageError
from storage.files.files import File, FileSystem

_log = logging.getLogger("server.metadata.log")

LOG_BYTES_MIN = 1 << 20
"""A log must be larger than this, and than the last snapshot, to be worth a snapshot."""


class MetadataLog:
    """The open log. One thread at a time. After SyncFailed it is permanently out of service."""

    __slots__ = (
        "_any_topic", "_directory", "_file", "_files", "_is_broken", "_on_failure", "_revision",
        "_snapshot_bytes", "_unfinished",
    )  # fmt: skip

    def __init__(
        self,
        files: FileSystem,
        directory: str,
        *,
        on_failure: Callable[[StorageError], None] = lambda _: None,
        any_topic: Callable[[], str | None] = lambda: None,
    ) -> None:
        """Create the log closed; `recover` opens it.

        Args:
            on_failure: called with the error that put the log out of service.
            any_topic: returns the path of some topic's directory, or None.
        """
        # Constant after construction
        self._files = files
        self._directory = directory
        self._on_failure = on_failure
        self._any_topic = any_topic
        # State: `_revision` is the last one that is durable in `_file` or a snapshot.
        self._file: File | None = None
        self._revision = 0
        self._snapshot_bytes = 0
        self._is_broken = False
        # The recovery of `_file` that must complete before the next append; None: it is complete.
        self._unfinished: Metadata | None = None

    def recover(self) -> tuple[State, list[Transaction]]:
        """Read the newest snapshot and every transaction after it; open the log for appending.

        Raises:
            CorruptLog, DamagedFile: acknowledged changes can no longer be read.
            MissingMetadata: there is a topic, but no transaction; nothing was changed.
            FormatFromTheFuture: a later release wrote the files.
        """
        found = self._read()
        if found.revision == 0:
            # A topic's first transaction is durable before its directory is created.
            topic = self._any_topic()
            if topic is not None:
                raise MissingMetadata(self._directory, topic)
        if not self._files.exists(self._directory):
            self._files.make_directory(self._directory)
            self._files.sync_directory(self._directory.rpartition("/")[0])
        self._revision = found.revision
        self._snapshot_bytes = found.snapshot_bytes
        if found.log_path is None:
            self._begin_log()
        else:
            self._open_at(found.log_path, found)
        # The metadata hold the verifiers of passwords.
        self._files.restrict(self._directory)
        return found.state, found.transactions

    def _read(self) -> Metadata:
        if not self._files.exists(self._directory):
            return Metadata(state=State())
        return read_metadata(self._files, self._directory)

    def append(self, operations: list[Operation]) -> int:
        """Write one transaction and sync it. Returns its revision.

        Raises:
            StorageError: it was not written; after SyncFailed, nothing more can be written.
        """
        if self._is_broken or self._file is None:
            raise StorageError("the metadata store is out of service because a sync failed")
        if self._unfinished is not None:
            self._finish_recovery(self._unfinished)
        revision = self._revision + 1
        content = {"revision": revision, "operations": operations}
        position = self._file.append(encode_frame(content))
        self._sync(position)
        self._revision = revision
        return revision

    @property
    def is_due_for_snapshot(self) -> bool:
        """Whether the log has become larger than the snapshot."""
        assert self._file is not None
        return self._file.size > max(LOG_BYTES_MIN, self._snapshot_bytes)

    def snapshot(self, state: State) -> None:
        """Write `state` as a snapshot, start a new log and remove the files that both replace."""
        assert state.revision == self._revision
        data = encode_snapshot(state)
        path = self._path(state.revision, "snapshot")
        self._files.replace_durably(path, data, secret=True)
        self._snapshot_bytes = len(data)
        before = self._file
        assert before is not None
        try:
            self._begin_log()
        except NoSpace:
            # Keep the snapshot and continue with the old log; readers skip what is in both.
            self._file = before
            self._files.unlink(self._path(state.revision + 1, "log"))
            self._files.sync_directory(self._directory)
            raise
        except StorageError as error:
            # The snapshot is durable, but without a log no further change can be.
            self._break(error)
            raise
        before.close()
        self._remove_older(state.revision)

    def close(self) -> None:
        """Close the file. Everything appended is already durable."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _path(self, revision: int, kind: str) -> str:
        return metadata_file(self._directory, revision, kind)

    def _sync(self, position: int) -> None:
        assert self._file is not None
        try:
            self._file.sync()
        except StorageError as error:
            # Whether the frame is on the disk is unknown: a failed sync is never retried.
            _log.critical("metadata log: sync failed at byte %d, now out of service", position)
            self._break(error)
            raise

    def _break(self, error: StorageError) -> None:
        self._is_broken = True
        self._on_failure(error)

    def _begin_log(self) -> None:
        path = self._path(self._revision + 1, "log")
        if self._files.exists(path):
            # A start that did not complete has created it, and nothing was appended since.
            self._files.unlink(path)
        self._file = self._files.open(path, create=True)
        self._files.restrict(self._directory)
        self._write_header()

    def _write_header(self) -> None:
        assert self._file is not None
        self._file.append(encode_frame({"format": FORMAT}))
        self._sync(0)
        self._files.sync_directory(self._directory)

    def _remove_older(self, revision: int) -> None:
        for name in self._files.list(self._directory):
            found = NAME.fullmatch(name)
            newest = revision + 1 if found and found[2] == "log" else revision
            if found and int(found[1]) < newest:
                self._files.unlink(f"{self._directory}/{name}")

    def _open_at(self, path: str, found: Metadata) -> None:
        """Open the last log for appending; cut off a torn frame and save it."""
        self._file = self._files.open(path)
        # The process that wrote it may not have synced everything that was read.
        self._sync(found.log_end)
        self._unfinished = found
        try:
            self._finish_recovery(found)
        except NoSpace as error:
            _log.warning(
                "%s: disk full, recovery postponed until the first change: %s", path, error
            )

    def _finish_recovery(self, found: Metadata) -> None:
        """Make the log end after its last valid frame, and write its header if it is empty.

        Raises:
            NoSpace: the log is unchanged; nothing can be appended yet.
        """
        assert self._file is not None
        if found.torn and self._file.size > found.log_end:
            self._cut(self._file, found)
        if found.log_end == 0 and self._file.size == 0:
            self._write_header()
        self._files.sync_directory(self._directory)
        self._unfinished = None

    def _cut(self, file: File, found: Metadata) -> None:
        saved = self._path_for_torn()
        self._files.write_bytes(saved, found.torn)
        self._files.sync_directory(self._directory)
        _log.warning(
            "%s: cut off a torn transaction of %s at byte %d, saved as %s",
            file.path, count_text(len(found.torn), "byte"), found.log_end, saved,
        )  # fmt: skip
        file.truncate(found.log_end)
        self._sync(found.log_end)

    def _path_for_torn(self) -> str:
        names = self._files.list(self._directory)
        number = sum(name.startswith(f"cut.{self._revision}.") for name in names)
        return f"{self._directory}/cut.{self._revision}.{number}"
